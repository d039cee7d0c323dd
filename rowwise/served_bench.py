"""What a function of one example gains by being batched, measured: its served path against the function as it is.

``n`` callers at once are ``n`` requests of one example that come in one turn of the event loop. The served path answers
them as a server does, from decoded rows to outputs: queue, planner, the compiled graph of a batch size on the engine's
thread, rows divided again. The looped form calls the traced function once for each, as a server does that is written by
hand. HTTP and JSON are in neither: ``rowwise loadtest`` measures those too.

Source: rounds in which the forms take turns, and their medians, so that a machine that is busy for a while is so for
both.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowwise.values import encode_json, to_wire
from server.batching import QueueLimits
from server.hosting import Host
from server.protocol import Rows, decode_predict

if TYPE_CHECKING:
    from server.build.declaration import Declaration
    from server.serving import ServedModel
    from server.serving_answer import Answer

__all__ = ["Timing", "looped_function", "measure_served"]

#: Different examples that are asked in turn: enough that no branch is taken for all.
_N_EXAMPLES = 64
#: A measurement repeats what takes less, so that the clock and the wake-ups of threads don't decide it.
_LEAST_S = 0.02
_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Medians over the rounds of the seconds in which all callers have their answers, and every round of each."""

    callers: int
    looped_s: float
    served_s: float
    looped_rounds_s: tuple[float, ...]
    served_rounds_s: tuple[float, ...]

    @property
    def gain(self) -> float:
        """How many times as fast the served path is."""
        return self.looped_s / self.served_s

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "callers": self.callers,
            "looped_s": self.looped_s,
            "served_s": self.served_s,
            "gain": self.gain,
            "looped_rounds_s": list(self.looped_rounds_s),
            "served_rounds_s": list(self.served_rounds_s),
        }


def looped_function(declaration: Declaration) -> tuple[Callable[[Mapping[str, Any]], object], list[Mapping[str, Any]]]:
    """Return the traced function of one example, its answer as arrays, and examples that it answers.

    They are the model's own, else ordinary random ones of the builder's checks. Errors: VectorizerError.
    """
    from vectorizer import trace_example
    from vectorizer.lengths import length_axes
    from vectorizer.probes import make_probes

    function = trace_example(declaration.function, declaration.inputs)
    axes = length_axes(declaration.inputs, declaration.lengths)
    probes = make_probes(function, axes, examples=declaration.examples, seed=0).ordinary
    own = [probe for probe in probes if probe.kind == "yours"]

    def answer(example: Mapping[str, Any]) -> list[Any]:
        return [output.numpy() for output in function(example)]

    return answer, [probe.example for probe in (own or probes)[:_N_EXAMPLES]]


def measure_served(
    artifact: Path,
    answer: Callable[[Mapping[str, Any]], object],
    examples: Sequence[Mapping[str, Any]],
    *,
    callers: Sequence[int],
    n_rounds: int,
    on_round: Callable[[int, int], None],
) -> list[Timing]:
    """Load an artifact as a server does and measure both forms, for each number of callers.

    Errors: ArtifactRefused; LoadFailed; what the model's graph raises on an example.
    """
    return asyncio.run(_measure(artifact, answer, examples, callers, n_rounds, on_round))


async def _measure(
    artifact: Path,
    answer: Callable[[Mapping[str, Any]], object],
    examples: Sequence[Mapping[str, Any]],
    callers: Sequence[int],
    n_rounds: int,
    on_round: Callable[[int, int], None],
) -> list[Timing]:
    most = max(callers)
    host = Host(limits=QueueLimits(max_rows=most, max_bytes=_BYTES, max_bytes_in_all=_BYTES))
    host.start()
    try:
        hosted = await host.load("bench", 1, artifact, queue_rows=most, default_timeout_s=600.0, batch_limit=None)
        rows = _rows(hosted.model, examples)
        looped: dict[int, list[float]] = {n: [] for n in callers}
        served: dict[int, list[float]] = {n: [] for n in callers}
        repeats: dict[int, tuple[int, int]] = {}
        for n in callers:  # warm, and how often each has to be repeated
            first = _looped(answer, examples, n, 1), await _served(hosted.model, rows, n, 1)
            first = (
                min(first[0], _looped(answer, examples, n, 1)),
                min(first[1], await _served(hosted.model, rows, n, 1)),
            )
            repeats[n] = _times(first[0]), _times(first[1])
        for round_ in range(n_rounds):
            on_round(round_, n_rounds)
            for n in callers:
                served[n].append(await _served(hosted.model, rows, n, repeats[n][1]))
                looped[n].append(_looped(answer, examples, n, repeats[n][0]))
        on_round(n_rounds, n_rounds)
        await host.unload(hosted)
    finally:
        await host.aclose()
    return [
        Timing(
            callers=n,
            looped_s=statistics.median(looped[n]),
            served_s=statistics.median(served[n]),
            looped_rounds_s=tuple(looped[n]),
            served_rounds_s=tuple(served[n]),
        )
        for n in callers
    ]


def _times(once_s: float) -> int:
    return max(1, round(_LEAST_S / once_s))


def _looped(
    answer: Callable[[Mapping[str, Any]], object], examples: Sequence[Mapping[str, Any]], n: int, repeats: int
) -> float:
    began_s = time.perf_counter()
    for _ in range(repeats):
        for caller in range(n):
            answer(examples[caller % len(examples)])
    return (time.perf_counter() - began_s) / repeats


async def _served(model: ServedModel, rows: Sequence[Rows], n: int, repeats: int) -> float:
    loop = asyncio.get_running_loop()
    began_s = time.perf_counter()
    for _ in range(repeats):
        done: asyncio.Future[None] = loop.create_future()
        answers: list[Answer] = []

        def take(answer: Answer, done: asyncio.Future[None] = done, answers: list[Answer] = answers) -> None:
            answers.append(answer)
            if answer.error is not None and not done.done():
                done.set_exception(answer.error)
            elif len(answers) == n and not done.done():
                done.set_result(None)

        for caller in range(n):
            model.predict(rows[caller % len(rows)], timeout_s=None, on_done=take)
        await done
    return (time.perf_counter() - began_s) / repeats


def _rows(model: ServedModel, examples: Sequence[Mapping[str, Any]]) -> list[Rows]:
    """Return each example as the rows of a request of its own, as the codec makes them of JSON."""
    names = [tensor.name for tensor in model.signature.inputs if not tensor.is_optional]
    rows = []
    for example in examples:
        sent = {name: to_wire(example[name], where=f"input {name!r}") for name in names}
        body = encode_json({"instances": [sent if len(model.signature.inputs) > 1 else sent[names[0]]]})
        rows.append(decode_predict(body, model.signature, max_instances=1).rows)
    return rows
