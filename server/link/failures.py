"""Errors that cross the link: by the name of their class, so that both sides of it give a caller the same answer."""

from __future__ import annotations

from server.batching import errors as batching
from server.engine import errors as engine
from server.errors import RowwiseError
from server.link.errors import EngineGone
from server.link.messages import Failure
from server.store import errors as store

__all__ = ["KINDS", "error_of", "failure_of"]

#: Every class that a prediction can end with on the engine's side. One that is missing arrives as its nearest base.
KINDS: dict[str, type[RowwiseError]] = {
    kind.__name__: kind
    for kind in (
        RowwiseError,
        EngineGone,
        *(getattr(batching, name) for name in batching.__all__),
        *(getattr(engine, name) for name in engine.__all__),
        store.ModelNotReady,
        store.VersionNotLoaded,
        store.StoreError,
    )
}


def failure_of(request_id: int, error: RowwiseError) -> Failure:
    """Return what is sent of an error."""
    kind = next(base.__name__ for base in type(error).__mro__ if KINDS.get(base.__name__) is base)
    return Failure(request_id, kind, str(error), getattr(error, "retry_after_s", None))


def error_of(failure: Failure) -> RowwiseError:
    """Return an error of the same class, with the same sentence."""
    kind = KINDS.get(failure.kind, RowwiseError)
    # Not by its constructor, which makes the sentence: that is there already.
    error = kind.__new__(kind)
    Exception.__init__(error, failure.message)
    if failure.retry_after_s is not None:
        error.retry_after_s = failure.retry_after_s  # type: ignore[attr-defined]
    return error
