"""The Open Inference Protocol over HTTP, as wire formats.

A body is JSON, or JSON followed by binary values, or the values of a model's only input and nothing else: the header
Inference-Header-Content-Length tells which. Most requests differ from an earlier one only in their values; what was
made of that one's form is used again (``oip_form``). Whatever can't be read that way is read exactly, value by value,
which is also what says what is wrong (``oip_request``, ``oip_plan``, ``oip_values``).
"""

from __future__ import annotations

from collections.abc import Sequence

from server.protocol.oip_codec import InferCall, OipCodec
from server.protocol.oip_request import header_bytes
from server.protocol.rows import Octets
from server.protocol.wire import Asked, ReadTogether
from server.signature import STRING

__all__ = ["OIP_JSON", "OipFormat", "oip_format"]

#: Codecs kept.
_MAX_CODECS = 256
#: By the identity of the signature, and the version, which answers name. A codec holds its signature, so an identity
#: here is never reused for another.
_CODECS: dict[tuple[int, int], OipCodec] = {}


class OipFormat:
    """Bodies of which the first ``n_json`` bytes are JSON; None: all of them."""

    __slots__ = ("n_json",)

    #: By an eighth.
    prefers_one = True

    def __init__(self, n_json: int | None) -> None:
        self.n_json = n_json

    def n_parsed(self, body: Octets, asked: Asked) -> int:
        """Return how many of a body's bytes have to be looked at: its JSON, and binary values that are strings."""
        if self.n_json is None or any(tensor.dtype == STRING for tensor in asked.signature.inputs):
            return len(body)
        return min(self.n_json, len(body))

    def decode(self, body: Octets, asked: Asked, *, max_instances: int) -> InferCall:
        """Read the body of an inference request. Errors: every ProtocolError but UnknownSignature."""
        return _codec_of(asked).decode(body, n_json=self.n_json, max_instances=max_instances)

    @staticmethod
    def decode_many(
        bodies: Sequence[bytes], formats: Sequence[OipFormat], asked: Asked, *, max_instances: int
    ) -> ReadTogether:
        """Read the bodies of several inference requests to one version, each with its own ``n_json``."""
        n_jsons = [each.n_json for each in formats]
        return _codec_of(asked).decode_many(bodies, n_jsons, max_instances=max_instances)


def _codec_of(asked: Asked) -> OipCodec:
    key = id(asked.signature), asked.version
    codec = _CODECS.get(key)
    if codec is None:
        if len(_CODECS) >= _MAX_CODECS:
            _CODECS.clear()
        codec = _CODECS[key] = OipCodec(asked)
    return codec


OIP_JSON = OipFormat(None)


def oip_format(header: bytes | None) -> OipFormat:
    """Return how a body is to be read, by Inference-Header-Content-Length. Errors: MalformedRequest."""
    return OIP_JSON if header is None else OipFormat(header_bytes(header))
