"""What is said on the link. A message is a header, MessagePack of one of these, and the frames of its arrays.

::

    worker                                  engine
      Hello (who I am)               ──▶
                                     ◀──    Table (what serves; again whenever that changes)
      Seen (which table I go by now) ──▶
      Asks (rows, and who has left)  ──▶
                                     ◀──    Answers (outputs, failures)

Requests of one event-loop tick travel in one ``Asks``, those of one entry point in one block of it: their rows lie end
to end, so that the number of requests costs little. Answers likewise. Times are readings of the system's monotonic
clock, in seconds, which all processes of a machine share.
"""

from __future__ import annotations

import msgspec

from server.signature import ModelSignature

__all__ = [
    "NOT_TOLD",
    "Answers",
    "AnswersBlock",
    "Asks",
    "AsksBlock",
    "BatchFacts",
    "Derivative",
    "Entry",
    "Failure",
    "FromEngine",
    "FromWorker",
    "Hello",
    "Seen",
    "Served",
    "Table",
    "decode_from_engine",
    "decode_from_worker",
    "encode",
]


class Hello(msgspec.Struct, array_like=True, tag="hello", frozen=True):
    """A worker is there, and goes by no table yet. The first that is said on a connection."""

    pid: int


class Seen(msgspec.Struct, array_like=True, tag="seen", frozen=True):
    """The worker has sent its last request by any table before ``serial``."""

    serial: int


class AsksBlock(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Requests of one entry point. ``ids`` are the worker's own, each used once; ``counts`` are their rows.

    ``callers`` tell whose they are, as far as that is known; ``priorities`` which go first, None being the ordinary
    one. ``lengths`` are the true sizes of the length axes, row by row; empty where there are none.
    """

    entry: int
    ids: list[int]
    counts: list[int]
    deadlines_s: list[float]
    callers: list[str | None]
    priorities: list[int | None]
    lengths: list[int]


class Asks(msgspec.Struct, array_like=True, tag="asks", frozen=True, gc=False):
    """What one tick of a worker brought: new requests, and ids of earlier ones whose callers have left."""

    blocks: list[AsksBlock]
    cancels: list[int]


class Derivative(msgspec.Struct, array_like=True, frozen=True):
    """Which derivative an entry point is; its ``signature`` is that entry's."""

    kind: str
    output: str
    wrt: tuple[str, ...]


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """One entry point that can be asked. ``number`` is the engine's own and never given to another."""

    number: int
    entry: str
    signature: ModelSignature
    derivative: Derivative | None


class Served(msgspec.Struct, array_like=True, frozen=True):
    """The version of a model that serves. ``entries`` begins with its prediction.

    ``labels`` are those by which a request gets this version. ``default_timeout_s`` is the deadline of a request
    that names none.
    """

    model: str
    version: int
    labels: tuple[str, ...]
    default_timeout_s: float
    entries: tuple[Entry, ...]


class Table(msgspec.Struct, array_like=True, tag="table", frozen=True):
    """All that serves, whole each time. ``pid`` is the engine's process."""

    serial: int
    pid: int
    served: tuple[Served, ...]


class BatchFacts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How a batch was run, for those who ask. Zeros where no row was executed."""

    id: int
    bucket: int
    n_rows: int
    compute_s: float
    reason: str


#: The batch of a request that was asked for together with others: they carry no wish to know it.
NOT_TOLD = -1


class AnswersBlock(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Results of one entry point.

    ``batches`` gives for each request its place in the message's ``batches``, or ``NOT_TOLD``.
    """

    entry: int
    ids: list[int]
    counts: list[int]
    batches: list[int]
    queue_s: list[float]


class Failure(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A request that ended with an error: its class by name, its sentence, and when to try again."""

    id: int
    kind: str
    message: str
    retry_after_s: float | None


class Answers(msgspec.Struct, array_like=True, tag="answers", frozen=True, gc=False):
    """What one tick of the engine finished."""

    batches: list[BatchFacts]
    blocks: list[AnswersBlock]
    failures: list[Failure]


FromWorker = Hello | Seen | Asks
FromEngine = Table | Answers

encode = msgspec.msgpack.Encoder().encode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode
