"""What stands between a front end and the wire formats: bytes in, rows; outputs, bytes out.

A front end picks the format by what it was asked (a path, a gRPC method) and knows nothing else of it. A format is made
once, or once for each request where something beside the body tells how the body is to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from server.protocol.rows import Column, Encoded, Octets, Rows
from server.signature import ModelSignature

__all__ = [
    "AnswerForm",
    "Asked",
    "BatchTexts",
    "BodyFormat",
    "ManyRequests",
    "ReadTogether",
    "WireFormat",
    "WireRequest",
]


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


class BatchTexts(Protocol):
    """The outputs of a batch, written, ready to be cut into answers."""

    def answer(self, start: int, stop: int, id_text: bytes | None) -> Encoded:
        """Return the answer that has these rows: to the byte what ``AnswerForm.one`` writes."""


class AnswerForm(Protocol):
    """How answers are written that differ only in their rows and what they repeat of their request."""

    def texts(self, outputs: Sequence[Column], n_rows: int) -> BatchTexts | None:
        """Write the first ``n_rows`` of a batch's outputs; None: each answer is to be written by itself."""

    def one(self, outputs: Sequence[Column], id_text: bytes | None) -> Encoded:
        """Write one answer. Errors: RaggedOutput."""


@dataclass(slots=True, eq=False)
class ManyRequests:
    """Requests that were read together: ``members`` says which of those that were asked for.

    ``rows`` holds the rows of all in their order, ``counts`` how many each has; ``id_texts`` what each answer repeats.
    """

    members: Sequence[int]
    rows: Rows
    counts: list[int]
    form: AnswerForm
    id_texts: Sequence[bytes | None]


@dataclass(slots=True, eq=False)
class ReadTogether:
    """What became of requests that were to be read together. Who is in neither is worth another try, with fewer."""

    groups: list[ManyRequests] = field(default_factory=list)
    #: Those that have to be read alone.
    alone: list[int] = field(default_factory=list)


class WireFormat(Protocol):
    """A format of requests and answers."""

    def n_parsed(self, body: Octets, asked: Asked) -> int:
        """Return how many of a body's bytes have to be looked at to read it; views of others cost nothing."""

    def decode(self, body: Octets, asked: Asked, *, max_instances: int) -> WireRequest:
        """Read a request's body. Errors: every ProtocolError; nothing else, whatever the bytes."""


class BodyFormat(WireFormat, Protocol):
    """A format of which several bodies can be read at once."""

    @property
    def n_json(self) -> int | None:
        """How many bytes of a body are JSON; None: it does not say, and all may have to be looked at."""

    @property
    def prefers_one(self) -> bool:
        """True: one body costs more in the way that is made for many than in the way that is made for one."""

    def decode_many(
        self, bodies: Sequence[bytes], formats: Sequence[Any], asked: Asked, *, max_instances: int
    ) -> ReadTogether:
        """Read the bodies of several requests of one path at once, as far as that works.

        ``formats`` are theirs, of this one's class, and may differ in what stands beside a body.
        Together at most ``SHARED_PARSER_MAX_BYTES``, or one body. Nothing is said of what is wrong with any.
        """
