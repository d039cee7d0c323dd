"""What became of each request, in columns: one row a request, whatever its end."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["RIGHT", "Observations", "Observer"]

#: The outcome of a request that was answered as it should be.
RIGHT = "right"
#: Characters of an example message.
_EXAMPLE_CHARACTERS = 400
#: Different outcomes; others are counted as the last one.
_MAX_OUTCOMES = 200
_OTHERS = "other failures"

Column = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The requests of one run.

    Columns have one entry a request. Seconds from the start: ``due_s`` when it should have been sent (in a closed loop
    when it was), ``sent_s`` when it was (not a number: never), ``done_s`` when its answer was read or it was given up.
    ``model`` and ``outcome`` are indices. ``elapsed_s`` is how long requests were sent, warm-up included; ``busy`` the
    share of one core that the generator used meanwhile; ``n_waited`` how many found no connection free. ``examples``
    has a message of each outcome but the first.
    """

    models: tuple[str, ...]
    outcomes: tuple[str, ...]
    due_s: Column
    sent_s: Column
    done_s: Column
    model: Column
    outcome: Column
    warmup_s: float
    elapsed_s: float
    busy: float
    n_waited: int = 0
    is_interrupted: bool = False
    examples: dict[str, str] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Sequence[Observations]) -> Observations:
        """Put together what several processes saw of one run; ``busy`` becomes that of the busiest."""
        outcomes = tuple(dict.fromkeys([RIGHT, *(name for part in parts for name in part.outcomes)]))
        code = {name: number for number, name in enumerate(outcomes)}
        translated = [np.array([code[name] for name in part.outcomes], np.uint16)[part.outcome] for part in parts]
        examples: dict[str, str] = {}
        for part in parts:
            examples = {**part.examples, **examples}
        return cls(
            models=parts[0].models,
            outcomes=outcomes,
            **{
                name: np.concatenate([getattr(part, name) for part in parts])
                for name in ("due_s", "sent_s", "done_s", "model")
            },
            outcome=np.concatenate(translated),
            warmup_s=parts[0].warmup_s,
            elapsed_s=max(part.elapsed_s for part in parts),
            busy=max(part.busy for part in parts),
            n_waited=sum(part.n_waited for part in parts),
            is_interrupted=any(part.is_interrupted for part in parts),
            examples=examples,
        )


class Observer:
    """Collects them while the load runs: an append for each column, and nothing else."""

    def __init__(self, models: Sequence[str]) -> None:
        self._models = tuple(models)
        self._codes: dict[str, int] = {RIGHT: 0}
        self._due_s, self._sent_s, self._done_s = array("d"), array("d"), array("d")
        self._model, self._outcome = array("H"), array("H")
        self._examples: dict[str, str] = {}
        self.n_failed = 0
        self.n_waited = 0

    def __len__(self) -> int:
        return len(self._done_s)

    def add(self, model: int, due_s: float, sent_s: float, done_s: float, outcome: int = 0) -> None:
        """Take a request's end. ``outcome``: 0, or what ``failure`` gave."""
        self._model.append(model)
        self._due_s.append(due_s)
        self._sent_s.append(sent_s)
        self._done_s.append(done_s)
        self._outcome.append(outcome)

    def failure(self, outcome: str, example: str) -> int:
        """Return the number of a failure, and keep the first message of its kind."""
        self.n_failed += 1
        if outcome not in self._codes and len(self._codes) >= _MAX_OUTCOMES:
            outcome = _OTHERS
        self._examples.setdefault(outcome, example[:_EXAMPLE_CHARACTERS])
        return self._codes.setdefault(outcome, len(self._codes))

    def glance(self, since: int, *, at_most: int = 500) -> tuple[float, float]:
        """Return median and p99, in ms, of some of the requests that ended since: to be watched, not reported."""
        step = max(1, (len(self) - since) // at_most)
        waits = sorted(
            done - due for due, done in zip(self._due_s[since::step], self._done_s[since::step], strict=True)
        )
        if not waits:
            return 0.0, 0.0
        return waits[len(waits) // 2] * 1e3, waits[int(0.99 * (len(waits) - 1))] * 1e3

    def finish(self, *, warmup_s: float, elapsed_s: float, busy: float, is_interrupted: bool) -> Observations:
        """Return what was seen."""
        return Observations(
            models=self._models,
            outcomes=tuple(self._codes),
            due_s=np.array(self._due_s),
            sent_s=np.array(self._sent_s),
            done_s=np.array(self._done_s),
            model=np.array(self._model, np.uint16),
            outcome=np.array(self._outcome, np.uint16),
            warmup_s=warmup_s,
            elapsed_s=elapsed_s,
            busy=busy,
            n_waited=self.n_waited,
            is_interrupted=is_interrupted,
            examples=self._examples,
        )
