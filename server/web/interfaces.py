"""What the web layer asks of the rest of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from server.batching import CostTable, Returning
from server.build.source import Source
from server.errors import RowwiseError
from server.metrics import EntryKey
from server.protocol import Column, Rows
from server.request_counts import VersionRequests
from server.signature import ModelSignature
from server.spec import ModelSpec
from server.statistics import EntryStatistics
from server.store.records import NO_INTAKE, Intake, VersionRecord

__all__ = [
    "Answer",
    "Batches",
    "Catalog",
    "EntryPoint",
    "RequestMetrics",
    "ResidentModel",
    "ServedDerivative",
    "ServedModel",
    "ServerStatus",
    "ServingCatalog",
    "ServingVersion",
    "Taker",
    "Ticket",
    "WaitingRows",
]

#: What is told of the server itself, in plain JSON types; of models, those whose names the argument lets be seen.
ServerStatus = Callable[[Callable[[str], bool]], Awaitable[dict[str, Any]]]
#: Yields model, version, entry point and how many of its rows wait.
WaitingRows = Callable[[], Iterable[tuple[str, int, str, int]]]


class Answer(Protocol):
    """How a request ended: an error, or outputs in the signature's order; and how its rows were batched."""

    @property
    def error(self) -> RowwiseError | None:
        """None where ``outputs`` are valid."""

    @property
    def outputs(self) -> Sequence[Column]:
        """Arrays ``[n, ...]``, or lists of n arrays where the shape varies."""

    @property
    def batch_id(self) -> int:
        """The batch that held the request's first row."""

    @property
    def bucket(self) -> int:
        """Rows of that batch's graph."""

    @property
    def batch_rows(self) -> int:
        """Rows in it that belonged to callers."""

    @property
    def queue_s(self) -> float:
        """Seconds from admission to execution."""

    @property
    def compute_s(self) -> float:
        """Seconds of execution."""

    @property
    def reason(self) -> str:
        """Why the batch was dispatched when it was."""


class Ticket(Protocol):
    """A request that was admitted."""

    def cancel(self) -> bool:
        """Take it back; False if it runs already or is done. ``on_done`` is called either way, once."""


class EntryPoint(Protocol):
    """One thing that a version answers: its prediction, or a derivative."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def version(self) -> int:
        """Its version."""

    @property
    def entry(self) -> str:
        """The entry point: ``predict``, or the name of a derivative."""

    @property
    def signature(self) -> ModelSignature:
        """Always the same object for one ServedModel."""

    def predict(
        self,
        rows: Rows,
        *,
        timeout_s: float | None,
        on_done: Callable[[Answer], None],
        spent_s: float = 0.0,
        caller: str | None = None,
        priority: int | None = None,
    ) -> Ticket:
        """Admit rows. Of ``timeout_s``, or the model's own, ``spent_s`` are over; ``caller`` is who sent them.

        Rows of a lower ``priority`` go first, 1 before all; None is the ordinary one.

        ``on_done`` is called exactly once, on the event loop's thread, maybe before this returns.

        Errors: those of batching that refuse admission; then ``on_done`` is not called.
        """


class Taker(Protocol):
    """Takes the answers of requests that were admitted together, each by the tag that it was given."""

    def ran(self, tag: object, outputs: Sequence[Column], start: int, stop: int, queue_s: float) -> None:
        """Take a request's rows: ``start`` up to ``stop`` of a batch's outputs, after ``queue_s`` seconds in the queue.

        Requests of one batch get the same object.
        """

    def ended(self, tag: object, answer: Answer) -> None:
        """Take an answer that is no such piece: an error, or one that was put together."""


class ServedModel(EntryPoint, Protocol):
    """One version that answers: as an entry point it is its prediction."""

    def refuses_all(self, *, timeout_s: float | None, spent_s: float) -> RowwiseError | None:
        """Return why no request would be admitted now, of whatever rows, before it is read; None if one may be.

        Of ``timeout_s``, or the model's own, ``spent_s`` are over.
        """

    @property
    def returning(self) -> Returning | None:
        """Who is to be told that a caller has asked again after an answer; None: nobody waits for that."""

    def awaits(self, n_rows: int) -> bool:
        """Return whether so many rows, were they here, would wait for callers who are about to ask again."""

    @property
    def free_in_s(self) -> float:
        """Seconds until a batch can begin, as far as that is known; 0: at once."""

    def predict_many(
        self,
        rows: Rows,
        counts: Sequence[int],
        places: Sequence[int],
        *,
        tags: Sequence[object],
        callers: Sequence[str | None],
        timeout_s: float | None,
        spent_s: float,
        taker: Taker,
    ) -> Sequence[object]:
        """Admit several requests whose rows lie end to end, and return what ``take_back`` takes of each.

        Shapes: ``counts`` are the requests' rows, ``places`` the first row of each. Of ``timeout_s``,
        or the model's own, ``spent_s`` are over for each. ``taker`` is told of each once, of those that are refused
        before this returns.
        """

    def take_back(self, handle: object) -> None:
        """Take a request back, as far as it does not run."""

    @property
    def derivatives(self) -> Sequence[ServedDerivative]:
        """The other entry points."""


class ResidentModel(ServedModel, Protocol):
    """A version that answers, as the process knows it that runs it."""

    @property
    def statistics(self) -> EntryStatistics:
        """How its predictions went since it was loaded."""

    @property
    def cost_tables(self) -> Mapping[tuple[int, ...], CostTable]:
        """What its predictions are planned with, by padded lengths."""

    @property
    def batch_sizes(self) -> Sequence[int]:
        """Rows of the batches that it can run, ascending."""


class ServingVersion(Protocol):
    """A version that serves."""

    @property
    def model(self) -> ResidentModel:
        """Who answers."""


class ServedDerivative(Protocol):
    """A derivative that a version answers besides its outputs."""

    @property
    def kind(self) -> str:
        """Gradient, jacobian or hessian."""

    @property
    def output(self) -> str:
        """The output that is differentiated."""

    @property
    def wrt(self) -> tuple[str, ...]:
        """The inputs and variables that it is by."""

    @property
    def model(self) -> EntryPoint:
        """Who answers with all of it."""

    def by(self, wrt: tuple[str, ...]) -> EntryPoint:
        """Return who answers with the results by ``wrt`` alone."""


class RequestMetrics(Protocol):
    """Where predictions are counted."""

    @property
    def audit_failures(self) -> Callable[[], object]:
        """Called for each line that the audit log lacks."""

    def of_version(self, model: str, version: int, entry: str = "predict") -> VersionRequests:
        """Return the counters of an entry point of a version that exists."""

    def request_without_model(self, code: int, *, reason: str = "") -> None:
        """Count a request that no version answered."""


class Batches(Protocol):
    """Where the last batches are remembered."""

    def recent(self, *, model: str | None, limit: int, covers: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Return the newest first, of one model or of all, that ``covers`` lets be seen."""

    def keep_waits(self, *, keeps: bool) -> None:
        """Remember how long every request waited, or not."""

    def latencies_s(self, *, since_s: float, most: int) -> dict[EntryKey, list[float]]:
        """Return how long the last requests took that ended after ``since_s``, at most about ``most``."""


class ServingCatalog(Protocol):
    """What a prediction needs to know of the models."""

    def resolve(self, name: str, version: int | None = None) -> ServedModel:
        """Return who answers; None is the active version. Errors: ModelNotFound, VersionNotFound, ModelNotReady."""

    def versions(self, name: str) -> list[VersionRecord]:
        """Return every version of one model. Errors: ModelNotFound."""


class Catalog(ServingCatalog, Protocol):
    """All models of the server and what can be done with them."""

    def resolve(self, name: str, version: int | None = None) -> ResidentModel:
        """Return who answers; None is the active version. Errors: ModelNotFound, VersionNotFound, ModelNotReady."""

    def serving(self) -> Sequence[ServingVersion]:
        """Return every version that serves."""

    async def check_new(self, name: str, *, n_bytes: int) -> None:
        """Raise what ``register`` would for an archive of so many bytes, as far as that is known before it comes."""

    async def register(
        self, name: str, spec: ModelSpec, source: Source, *, intake: Intake = NO_INTAKE
    ) -> VersionRecord:
        """Record a new version as BUILDING and start its build. Owns an archive's file from then on."""

    async def wait(self, name: str, version: int) -> VersionRecord:
        """Return once the version is AVAILABLE, FAILED, or gone (VersionNotFound)."""

    def models(self) -> list[VersionRecord]:
        """Return every version of every model."""

    def version(self, name: str, version: int) -> VersionRecord:
        """Return one version. Errors: ModelNotFound, VersionNotFound."""

    async def activate(self, name: str, version: int, *, by: str = "") -> VersionRecord:
        """Switch to a version; ``by`` is who asked for it. Errors: not found, Conflict."""

    async def rollback(self, name: str, *, by: str = "") -> VersionRecord:
        """Switch to the version that answered before. Errors: not found, Conflict."""

    def labels(self, name: str) -> Mapping[str, int]:
        """Return the labels that were set, with the version that each leads to. Errors: not found."""

    async def set_label(self, name: str, label: str, version: int) -> VersionRecord:
        """Let a label lead to a version. Errors: not found, Conflict, InvalidLabel."""

    async def remove_label(self, name: str, label: str) -> None:
        """Remove a label that was set. Errors: not found."""

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return what was activated, oldest first. Errors: not found."""

    async def load(self, name: str, *, by: str = "") -> VersionRecord:
        """Let the version answer that did before an unload, else the newest built one. Errors: not found, Conflict."""

    async def unload(self, name: str, *, by: str = "") -> VersionRecord:
        """Let no version answer, also after a restart. Errors: not found."""

    async def set_shadow(self, name: str, version: int, share: float) -> dict[str, Any]:
        """Let a version run on a share of the live batches; 0 ends it. Errors: not found, Conflict, EngineError."""

    def shadow(self, name: str, version: int) -> dict[str, Any]:
        """Return how a shadow's answers compare. Errors: not found, Conflict."""

    async def delete(self, name: str, version: int | None) -> None:
        """Delete one version, or all. Errors: not found, Conflict."""

    def certificate(self, name: str, version: int | None) -> bytes:
        """Return the certificate's JSON. Errors: not found, ModelNotReady."""

    def costs(self, name: str, version: int | None) -> bytes:
        """Return the measured costs' JSON. Errors: not found, ModelNotReady."""

    def notes(self) -> list[str]:
        """Return what is wrong and keeps nobody from being answered, a sentence each."""

    def readiness(self) -> list[str]:
        """Return the reasons why the server is not ready; none: it is."""

    def partial_upload_dir(self) -> Path:
        """Return where uploads in pieces lie, over restarts; on the store's file system, and made by who needs it."""

    def new_upload_path(self) -> Path:
        """Return a path that doesn't exist yet, in the store, for one upload."""
