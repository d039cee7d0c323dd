"""The check that decides whether a batched graph may be served: it must answer as the per-example function does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from vectorizer.agreement import AnswerBits
from vectorizer.certificate import OutputParity, ParityRecord
from vectorizer.errors import ParityError, ProbeError
from vectorizer.lengths import Axis
from vectorizer.mismatch import Mismatch, fails, mismatch_message
from vectorizer.padding import judge_padding
from vectorizer.parity import Difference, difference, summed_up
from vectorizer.probe_batches import fits, stack_probes
from vectorizer.probes import Probe, ProbeKind, shown
from vectorizer.stability import is_unstable, varies_in_batches
from vectorizer.trace import ExampleFunction
from vectorizer.vectorized import Bucket, Output

__all__ = ["RunBatch", "verify_bucket", "verify_refusals"]

#: Refused examples that a bucket is tried on: each costs a call that fails.
_MAX_REFUSED = 8
#: Batches that move probes through the slots, if there is time: in a softmax of ten numbers every third example showed
#: that the last ones of a batch are rounded otherwise.
_MOVES = range(1, 13)
_LEAST_MOVES = 3

#: Runs one full bucket: inputs by name, ``[rows, *s]`` each -> outputs by name, ``[rows, *t]`` each.
RunBatch = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def verify_bucket(
    function: ExampleFunction,
    axes: Sequence[Axis],
    outputs: Sequence[Output],
    *,
    bucket: Bucket,
    run: RunBatch,
    probes: Sequence[Probe],
    tolerance: float | None,
    bits: AnswerBits | None = None,
    moving_s: float | None = None,
) -> ParityRecord:
    """Run the probes that fit through a bucket, ordinary beside extreme ones, and compare every row.

    Every slot is used; some probes come back in another slot beside other neighbours. ``bits`` takes down what was
    answered, to tell which buckets agree; with ``moving_s`` more slots and neighbours are tried, until so many seconds
    have passed.
    Errors: ParityError naming the output, the worst example and both answers; ProbeError if no probe fits.
    """
    fitting = [number for number, probe in enumerate(probes) if fits(probe, bucket)]
    if not fitting:
        raise ProbeError(
            f"{function.name}: {bucket} can't be checked, as the function raised on every example that fits it; give "
            "examples that it answers (examples=[...]), or leave that length out of the length buckets"
        )
    bits = bits if bits is not None else AnswerBits()
    key = (bucket.rows, *bucket.lengths)
    judge = _Judge(function, axes, outputs, bucket, run, tolerance)
    for numbers in _batches(fitting, bucket.rows):
        rows = [probes[number] for number in numbers]
        for number, probe, answers in zip(numbers, rows, judge.answers(rows), strict=True):
            judge.compare(probe, answers)
            bits.note(key, number, answers)
    if moving_s is not None and bucket.rows > 1:
        until_s = time.perf_counter() + moving_s
        for moved, numbers in enumerate(_moved(fitting, bucket.rows, probes)):
            if moved >= _LEAST_MOVES and time.perf_counter() > until_s:
                break
            for number, answers in zip(numbers, judge.answers([probes[number] for number in numbers]), strict=True):
                bits.note(key, number, answers)
    judge.refuse_worst()
    return ParityRecord(
        rows=bucket.rows,
        lengths=bucket.lengths,
        n_examples=len(fitting),
        outputs=tuple(judge.parity(output) for output in outputs),
        n_unstable=len(judge.unstable),
        padding=judge_padding(judge.answers, [probes[number] for number in fitting], bucket, judge.is_right),
        steady=bits.is_steady(key),
    )


def _batches(fitting: Sequence[int], rows: int) -> Iterator[list[int]]:
    """Yield full batches: every probe once, then one batch in reverse, so in other slots beside other neighbours."""
    for start in range(0, len(fitting), rows):
        yield [fitting[(start + slot) % len(fitting)] for slot in range(rows)]
    yield [fitting[-1 - slot % len(fitting)] for slot in range(rows)]


def _moved(fitting: Sequence[int], rows: int, probes: Sequence[Probe]) -> Iterator[list[int]]:
    """Yield full batches that show whether slot or neighbours matter: one probe in every slot, all in another order."""
    random = [number for number in fitting if probes[number].kind is ProbeKind.RANDOM] or fitting
    for move in _MOVES:
        yield [random[move % len(random)]] * rows
        stride = 2 * move + 1
        yield [fitting[stride * (slot + 1) % len(fitting)] for slot in range(rows)]


def verify_refusals(
    function: ExampleFunction,
    axes: Sequence[Axis],
    *,
    bucket: Bucket,
    run: RunBatch,
    probes: Sequence[Probe],
    refused: Sequence[Probe],
) -> None:
    """Run a bucket with each example on which the function raised, in another slot every time.

    Errors: ParityError for one that the bucket answers.
    """
    good = next(probe for probe in probes if fits(probe, bucket))
    bads = [probe for probe in refused if fits(probe, bucket)]
    for number, bad in enumerate(bads[:_MAX_REFUSED]):
        rows = [bad if slot == number % bucket.rows else good for slot in range(bucket.rows)]
        try:
            run(stack_probes(function.inputs, axes, bucket, rows))
        except tf.errors.OpError:
            continue
        raise ParityError(f"{function.name}: {bucket} answers the example {shown(bad.example)}, which it refuses alone")


@dataclass
class _Judge:
    """Compares the rows of one bucket's batches and remembers the worst."""

    function: ExampleFunction
    axes: Sequence[Axis]
    outputs: Sequence[Output]
    bucket: Bucket
    run: RunBatch
    tolerance: float | None
    unstable: set[int] = field(default_factory=set)
    _differences: dict[str, list[Difference]] = field(default_factory=dict)
    #: By output, the largest difference within tolerance, and the largest one beyond.
    _worst: dict[str, Mismatch] = field(default_factory=dict)
    _wrong: list[Mismatch] = field(default_factory=list)

    def answers(self, rows: Sequence[Probe], *, with_garbage: bool = False) -> list[list[np.ndarray]]:
        """Run a full batch and return the outputs of each row, cut to its length. Errors: ParityError if it raises."""
        feeds = stack_probes(self.function.inputs, self.axes, self.bucket, rows, with_garbage=with_garbage)
        try:
            results = self.run(feeds)
        except tf.errors.OpError as error:
            raise fails(self.function, self.bucket, error) from error
        cut = []
        for slot, row in enumerate(rows):
            lengths = dict(zip((axis.name for axis in self.axes), row.lengths, strict=True))
            cut.append([output.row(results, slot, lengths) for output in self.outputs])
        return cut

    def compare(self, probe: Probe, answers: Sequence[np.ndarray]) -> None:
        """Take down how far one row's answers are from the function's."""
        for index, output in enumerate(self.outputs):
            tolerance = output.tolerance(self.tolerance)
            want, have = probe.answers[index], answers[index]
            found = difference(want, have, tolerance=tolerance)
            if found.is_far and self._says_nothing(probe, index, have, tolerance):
                self.unstable.add(id(probe))
                continue
            self._differences.setdefault(output.name, []).append(found)
            if found.same_bits:
                continue
            mismatch = Mismatch(output=output, probe=probe, want=want, have=have, difference=found)
            if found.is_far:
                self._wrong.append(mismatch)
            known = self._worst.get(output.name)
            if known is None or known.difference.relative < found.relative:
                self._worst[output.name] = mismatch

    def _says_nothing(self, probe: Probe, index: int, have: np.ndarray, tolerance: float) -> bool:
        if probe.kind is ProbeKind.EXTREME and is_unstable(self.function, probe, index, have, tolerance):
            return True
        constant = probe.kind in (ProbeKind.EXTREME, ProbeKind.EDGE)
        return constant and varies_in_batches(self.function, probe, index, self.bucket.rows, tolerance)

    def is_right(self, probe: Probe, answers: Sequence[np.ndarray]) -> bool:
        """Return True if all answers are within tolerance."""
        return not any(
            difference(want, have, tolerance=output.tolerance(self.tolerance)).is_far
            for output, want, have in zip(self.outputs, probe.answers, answers, strict=True)
        )

    def refuse_worst(self) -> None:
        """Errors: ParityError naming the row that is furthest from the function's answer, if any is too far."""
        if self._wrong:
            worst = max(self._wrong, key=lambda mismatch: mismatch.difference.relative)
            raise ParityError(mismatch_message(self.function, self.axes, self.bucket, worst, self.tolerance))

    def parity(self, output: Output) -> OutputParity:
        """Return what was found about one output."""
        worst = self._worst.get(output.name)
        return summed_up(
            output.name,
            self._differences.get(output.name, []),
            has_ulp=np.dtype(output.dtype.as_numpy_dtype).kind == "f",
            worst=worst.shown() if worst is not None else None,
        )
