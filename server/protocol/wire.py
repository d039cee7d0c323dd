"""What stands between a front end and the wire formats: bytes in, rows; outputs, bytes out.

A front end picks the format by what it was asked (a path, a gRPC method) and knows nothing else of it. A format is made
once, or once for each request where something beside the body tells how the body is to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from server.protocol.rows import Column, Encoded, Rows
from server.signature import ModelSignature

__all__ = ["Asked", "WireFormat", "WireRequest"]


class Asked(Protocol):
    """Who is asked: one entry point of a version."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def version(self) -> int:
        """Its version."""

    @property
    def signature(self) -> ModelSignature:
        """Always the same object for one entry point."""


class WireRequest(Protocol):
    """A request that was read, and how its answer is to be written."""

    @property
    def rows(self) -> Rows:
        """The examples."""

    @property
    def timeout_s(self) -> float | None:
        """The deadline that the body itself names, seconds from the request's start; None: none."""

    @property
    def priority(self) -> int | None:
        """How soon the body wants it, 1 before all others; None: it does not say."""

    def encode(self, outputs: Sequence[Column]) -> Encoded:
        """Write the answer; ``outputs`` are in the signature's order."""


class WireFormat(Protocol):
    """A format of requests and answers."""

    def n_parsed(self, body: bytes, asked: Asked) -> int:
        """Return how many of a body's bytes have to be looked at to read it; views of others cost nothing."""

    def decode(self, body: bytes, asked: Asked, *, max_instances: int) -> WireRequest:
        """Read a request's body. Errors: every ProtocolError; nothing else, whatever the bytes."""
