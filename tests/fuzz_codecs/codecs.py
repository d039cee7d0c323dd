"""The codecs as targets: bytes in, and either rows that are what the signature says, or a declared error."""

from __future__ import annotations

from tests.fuzz_codecs.intake import HeaderBlocks, Packed, Registrations, Uploads
from tests.fuzz_codecs.json_codecs import Joint, OipRest, TfsJson
from tests.fuzz_codecs.proto_codecs import JointProto, OipProto, TfsProto
from tests.fuzz_codecs.target import Target

__all__ = ["CODECS"]

_TFS_JSON = TfsJson()
_OIP_JSON = OipRest("oip json", is_binary=False)
_OIP_BINARY = OipRest("oip binary", is_binary=True)
_OIP_PROTO = OipProto()
_TFS_PROTO = TfsProto()

CODECS: tuple[Target, ...] = (
    _TFS_JSON,
    Joint("tfs json, joint", _TFS_JSON),
    _OIP_JSON,
    Joint("oip json, joint", _OIP_JSON),
    _OIP_BINARY,
    Joint("oip binary, joint", _OIP_BINARY),
    _OIP_PROTO,
    JointProto("oip proto, joint", _OIP_PROTO),
    _TFS_PROTO,
    JointProto("tfs proto, joint", _TFS_PROTO),
    HeaderBlocks(),
    Packed(),
    Registrations(),
    Uploads(),
)
