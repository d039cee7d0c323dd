"""An artifact in memory: its sessions, its prepared callables, its staging."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from server.artifact import SAVED_MODEL_DIR, Bucket, CompiledGraph, Manifest
from server.batching import Batch, ExampleFailed, Isolated, RowErrors, isolate, runs_of_slice
from server.engine.answers import Answers, Outputs
from server.engine.errors import ArtifactRefused, LoadFailed
from server.engine.refusals import is_refusal, refusal_sentence
from server.engine.staging import Staging
from server.graph_checks import GraphRefused
from server.invariant import invariant_set

__all__ = ["GroupRunner", "LoadedModel"]

#: Calls of each bucket before it serves: the first builds executors and XLA code, the second finds caches warm.
_WARM_CALLS = 2


class GroupRunner:
    """All buckets of one entry point at one padded length. Used by one thread."""

    def __init__(
        self, staging: Staging, calls: Mapping[int, Any], costs_s: Mapping[int, float], answers: Answers
    ) -> None:
        self._staging = staging
        self._answers = answers
        self._calls = calls
        #: Measured cost of each bucket, seconds: what the planner plans with.
        self.costs_s = costs_s

    def run(self, batch: Batch) -> Outputs:
        """Execute a batch whose payloads are ``Rows``.

        Shapes: outputs in the signature's order, ``[bucket, *shape]`` each; rows from ``batch.n_rows`` on are padding.
            An output whose size the graph tells is a list of ``batch.n_rows`` arrays.
        Errors: ExampleFailed if the graph refuses a value; what else TensorFlow raises.
        """
        try:
            began_s = perf_counter()
            feeds = self._staging.fill(batch)
            staged_s = perf_counter()
            outputs = self._calls[batch.bucket](*feeds)
            batch.staged_s, batch.graph_s = staged_s - began_s, perf_counter() - staged_s
        except Exception as error:
            if is_refusal(error):
                raise ExampleFailed(refusal_sentence(error)) from None
            raise
        return self._answers.cut(self._staging.owned(outputs), batch.n_rows)

    def run_isolated(self, batch: Batch, failure: ExampleFailed) -> tuple[Outputs, RowErrors]:
        """Execute the rows of a batch that failed so that only the bad ones have no result.

        Shapes: as ``run``'s, ``[batch.n_rows, *shape]``; the values of a row that is bad or unsettled mean nothing.
        Errors: what TensorFlow raises through no row's fault.
        """
        spans = [(item, row, row + 1) for item, start, stop in batch.spans for row in range(start, stop)]

        def run(rows: Sequence[int]) -> Outputs:
            bucket = next(size for size in sorted(self._calls) if len(rows) <= size)
            part = Batch(
                batch.id,
                batch.group,
                bucket,
                [spans[row] for row in rows],
                n_rows=len(rows),
                reason=batch.reason,
                dispatched_s=batch.dispatched_s,
                predicted_s=batch.predicted_s,
            )
            return self.run(part)

        found = _search([row for row, (item, _, _) in enumerate(spans) if not item.is_done], failure, run, batch.n_rows)
        outputs: Outputs = []
        for rows, made in found.runs:
            if not outputs:
                outputs = [_blank(values, batch.n_rows) for values in made]
            for whole, values in zip(outputs, made, strict=True):
                if isinstance(whole, list):
                    for row, value in zip(rows, values, strict=True):
                        whole[row] = value
                else:
                    whole[list(rows)] = values[: len(rows)]
        return outputs, RowErrors(found.errors, found.unsettled)

    def warm(self) -> None:
        """Run every bucket, so that no request meets a first call. Errors: LoadFailed."""
        import tensorflow as tf

        for bucket, call in self._calls.items():
            for _ in range(_WARM_CALLS):
                # A function may refuse zeros (an integer division, a checked index): it is warm all the same.
                try:
                    call(*self._staging.blank(bucket))
                except tf.errors.InvalidArgumentError:
                    continue
                except Exception as error:
                    raise LoadFailed(f"bucket {bucket} failed: {type(error).__name__}: {error}") from error


def _search(
    rows: Sequence[int], failure: ExampleFailed, run: Callable[[Sequence[int]], Outputs], n_ran: int
) -> Isolated[Outputs]:
    """Find the bad ones among ``rows``, all that are still waited for of ``n_ran`` that failed together."""
    if len(rows) < n_ran:
        # The bad one may be among those that nobody waits for any more: what is left is not known to hold one.
        found: Isolated[Outputs] = Isolated()
        try:
            if rows:
                found.runs.append((rows, run(rows)))
        except ExampleFailed as again:
            failure = again
        else:
            return found
    return isolate(rows, failure, run, max_runs=runs_of_slice(len(rows)))


def _blank(values: np.ndarray[Any, Any] | list[np.ndarray[Any, Any]], n_rows: int) -> Any:
    if isinstance(values, list):
        return [values[0][:0] if values[0].ndim else values[0]] * n_rows
    return np.zeros((n_rows, *values.shape[1:]), values.dtype)


class LoadedModel:
    """One version, ready to run. ``groups`` maps (entry point, padded lengths) to its buckets.

    ``invariant``: only buckets that agree to the bit serve.
    """

    def __init__(
        self,
        manifest: Manifest,
        groups: Mapping[tuple[str, tuple[int, ...]], GroupRunner],
        sessions: list[Any],
        *,
        invariant: bool = False,
    ) -> None:
        self.manifest = manifest
        self.groups = groups
        self.invariant = invariant
        self._sessions = sessions

    @classmethod
    def load(
        cls, artifact: Path, *, batch_limit: int | None = None, invariant: bool = False, device: str | None = None
    ) -> LoadedModel:
        """Load and warm an artifact. Takes seconds: call it on a thread of its own.

        ``batch_limit`` leaves out larger buckets; the smallest one always stays. ``invariant`` leaves out those that
        do not agree with the others, as does a manifest that asks for it. ``device`` is TensorFlow's name of the one to
        run on; None lets it choose.
        Errors: ArtifactRefused if the directory is no artifact, or none of its buckets can serve in invariant mode;
            LoadFailed with TensorFlow's error.
        """
        try:
            manifest = Manifest.read(artifact)
        except (OSError, ValueError) as error:
            raise ArtifactRefused(f"the artifact can't be read: {error}; register the model again") from error
        _check_graph(artifact / SAVED_MODEL_DIR)
        sessions: dict[tuple[str, int], Any] = {}
        try:
            invariant = invariant or manifest.invariant
            groups = _groups(
                manifest,
                artifact / SAVED_MODEL_DIR,
                sessions,
                batch_limit=batch_limit,
                invariant=invariant,
                device=device,
            )
        except BaseException:
            _close(list(sessions.values()))
            raise
        return cls(manifest, groups, list(sessions.values()), invariant=invariant)

    @property
    def invariant_buckets(self) -> dict[str, list[Bucket]] | None:
        """The buckets that serve in invariant mode, ``(rows, *lengths)``, by entry point; None in free mode."""
        if not self.invariant:
            return None
        served: dict[str, list[Bucket]] = {}
        for (entry, lengths), runner in self.groups.items():
            served.setdefault(entry, []).extend((rows, *lengths) for rows in runner.costs_s)
        return served

    def close(self) -> None:
        """Give the memory back. No batch of it may run."""
        _close(self._sessions)
        self.groups = {}


def _check_graph(saved_model: Path) -> None:
    """Errors: ArtifactRefused. Whoever built it ran a stranger's code: what it wrote is read before it is loaded."""
    from server.graph_checks.check import check_saved_model  # TensorFlow, as above

    try:
        check_saved_model(saved_model, serves=True)
    except (GraphRefused, OSError) as error:
        raise ArtifactRefused(f"the artifact's graph is refused: {error}") from error


def _groups(
    manifest: Manifest,
    saved_model: Path,
    sessions: dict[tuple[str, int], Any],
    *,
    batch_limit: int | None,
    invariant: bool,
    device: str | None,
) -> dict[tuple[str, tuple[int, ...]], GroupRunner]:
    from server.engine._session import GraphSession  # TensorFlow: the HTTP process answers before it is loaded

    groups = {}
    for entry, graphs in manifest.entries.items():
        signature = manifest.signature_of(entry)
        names = Staging.names(signature)
        answers = Answers(signature)
        for lengths in dict.fromkeys(graph.lengths for graph in graphs):
            kept = _within([graph for graph in graphs if graph.lengths == lengths], batch_limit)
            if invariant:
                kept = _agreeing(kept, manifest, entry)
            calls = {}
            for graph in kept:
                key = (graph.mode.executor, graph.mode.intra_op_threads)
                try:
                    if key not in sessions:
                        sessions[key] = GraphSession(
                            saved_model, executor=key[0], intra_op_threads=key[1], device=device
                        )
                    calls[graph.rows] = sessions[key].callable(graph.signature, inputs=names, outputs=answers.names)
                except KeyError as error:
                    raise ArtifactRefused(f"the artifact is incomplete: {error.args[0]}") from error
                except Exception as error:
                    raise LoadFailed(f"{type(error).__name__}: {error}") from error
            staging = Staging(signature, lengths, [graph.rows for graph in kept])
            runner = GroupRunner(staging, calls, {graph.rows: graph.cost_s for graph in kept}, answers)
            runner.warm()
            groups[entry, lengths] = runner
    return groups


def _within(graphs: list[CompiledGraph], batch_limit: int | None) -> list[CompiledGraph]:
    if batch_limit is None:
        return graphs
    return [graph for graph in graphs if graph.rows <= batch_limit] or [min(graphs, key=lambda graph: graph.rows)]


def _agreeing(graphs: list[CompiledGraph], manifest: Manifest, entry: str) -> list[CompiledGraph]:
    kept = invariant_set(graphs, manifest.bitwise_groups.get(entry, ()))
    if not kept:
        raise ArtifactRefused(
            f"none of the buckets {[graph.rows for graph in graphs]} of {entry!r} can serve in invariant mode; "
            "register the model again with 'invariant': true"
        )
    return kept


def _close(sessions: list[Any]) -> None:
    while sessions:
        sessions.pop().close()
