"""Every protocol of the matrix: each says a question in its own form and reads the answer back into arrays."""

from __future__ import annotations

from collections.abc import Sequence

from tests.web.conformance.asking import Protocol
from tests.web.conformance.grpc_protocols import OipGrpc, TfsGrpc
from tests.web.conformance.rest_protocols import OipRest, TfsRest

__all__ = ["PROTOCOLS"]

#: Every row of the matrix.
PROTOCOLS: Sequence[Protocol] = (
    TfsRest("tfs-rest-rows", by_rows=True),
    TfsRest("tfs-rest-columns", by_rows=False),
    OipRest("oip-json-flat", "flat"),
    OipRest("oip-json-nested", "nested"),
    OipRest("oip-binary", "binary"),
    OipRest("oip-raw", "raw"),
    OipGrpc("oip-grpc-raw", is_raw=True),
    OipGrpc("oip-grpc-contents", is_raw=False),
    TfsGrpc("tfs-grpc-content", is_content=True),
    TfsGrpc("tfs-grpc-values", is_content=False),
)
