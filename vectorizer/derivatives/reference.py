"""The examples on which a derivative is checked, with the looped reference's answers.

They are the function's own probes. A function can have a kink at one of them (a maximum of equal numbers, a rectifier
at 0): there the derivative jumps, and the last bit of a sum decides to which side. So a probe that is out of
tolerance is looked at again: if the reference itself jumps within a few units in the last place of the inputs, the
probe says nothing, is left out and counted; if not, the batched graph is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from vectorizer.certificate import ParityRecord
from vectorizer.derivatives.choice import Choice
from vectorizer.derivatives.declaration import COTANGENT
from vectorizer.derivatives.looped import LoopedDerivative
from vectorizer.errors import ParityError, ProbeError
from vectorizer.lengths import Axis
from vectorizer.parity import compare
from vectorizer.probes import Probe, ProbeKind
from vectorizer.trace import ExampleFunction
from vectorizer.vectorized import Bucket, Vectorized
from vectorizer.verify import RunBatch, verify_bucket

__all__ = ["reference_probes", "verify_smooth"]

#: Elements that the reference computes for one derivative, one after the other; about 0.3 ms each.
_MOST_ELEMENTS = 8_192
_FEWEST_PROBES = 8
#: How far a kink may be from a probe, relative to each input: a few hundred units in the last place.
_NEAR = 2.0**8
#: Directions in which a kink is looked for.
_N_DIRECTIONS = 4


def reference_probes(choice: Choice, base: Vectorized, *, seed: int) -> tuple[list[Probe], list[Probe]]:
    """Return probes with the derivative as their answers, and those at which TensorFlow can't compute it.

    Extreme examples are left out: at infinity, the order of the factors decides between zero and not-a-number.

    Errors: ProbeError if there is none.
    """
    rng = np.random.default_rng(seed)
    looped = LoopedDerivative(base.function, choice)
    probes: list[Probe] = []
    refused: list[Probe] = []
    last_error: Exception | None = None
    for probe in _affordable(choice, [each for each in base.probes if each.kind is not ProbeKind.EXTREME]):
        answer = probe.answers[choice.output_index]
        example = dict(probe.example)
        if choice.kind == "vjp":
            example[COTANGENT] = rng.normal(size=answer.shape).astype(answer.dtype)
        try:
            answers = looped(example, answer)
        except (tf.errors.OpError, ValueError) as error:
            last_error = error
            refused.append(Probe(example=example, lengths=probe.lengths, answers=()))
        else:
            probes.append(Probe(example=example, lengths=probe.lengths, answers=answers))
    if not probes:
        raise ProbeError(
            f"{base.function.name}: TensorFlow computes its {choice.kind} for no probe, so nothing can be checked; "
            f"the last error: {last_error}"
        )
    return probes, refused


def verify_smooth(
    function: ExampleFunction,
    choice: Choice,
    base: Vectorized,
    axes: Sequence[Axis],
    *,
    bucket: Bucket,
    run: RunBatch,
    probes: list[Probe],
    tolerance: float | None,
) -> tuple[ParityRecord, int]:
    """Check one bucket; return the record and how many probes say nothing, being next to a kink.

    Errors: ParityError; ProbeError.
    """
    arguments = {"bucket": bucket, "run": run, "tolerance": tolerance}
    try:
        return verify_bucket(function, axes, choice.results, probes=probes, **arguments), 0  # type: ignore[arg-type]
    except ParityError:
        smooth = [probe for probe in probes if not _is_near_kink(probe, choice, base, tolerance)]
        if not smooth or len(smooth) == len(probes):
            raise
        record = verify_bucket(function, axes, choice.results, probes=smooth, **arguments)  # type: ignore[arg-type]
        return record, len(probes) - len(smooth)


def _affordable(choice: Choice, probes: Sequence[Probe]) -> list[Probe]:
    """Return as many probes as the reference can answer in reasonable time, spread over all of them."""
    if choice.kind in ("gradient", "vjp"):
        return list(probes)
    largest = 1
    for probe in probes:
        if choice.kind == "jacobian":
            largest = max(largest, probe.answers[choice.output_index].size)
        else:
            values = [probe.example[s.name] if s.variable is None else s.variable for s in choice.sources]
            largest = max(largest, sum(int(np.prod(value.shape)) for value in values))
    n_probes = min(len(probes), max(_FEWEST_PROBES, _MOST_ELEMENTS // largest))
    return [probes[index] for index in np.unique(np.linspace(0, len(probes) - 1, n_probes).astype(int))]


def _is_near_kink(probe: Probe, choice: Choice, base: Vectorized, tolerance: float | None) -> bool:
    """Return True if the reference itself differs by more than the tolerance a few bits away."""
    rng = np.random.default_rng(0)
    looped = LoopedDerivative(base.function, choice)
    names = [name for name, spec in base.function.inputs.items() if spec.dtype.is_floating]
    for _ in range(_N_DIRECTIONS):
        moved = {name: _moved(value, rng) if name in names else value for name, value in probe.example.items()}
        try:
            output = base.function(moved)[choice.output_index].numpy()
            there = looped(moved, np.asarray(output))
        except (tf.errors.OpError, ValueError):
            return True
        for result, want, have in zip(choice.results, probe.answers, there, strict=True):
            _, bad = compare(result.name, [want], [have], tolerance=result.tolerance(tolerance))
            if bad is not None:
                return True
    return False


def _moved(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    step = float(np.finfo(value.dtype).eps) * _NEAR if value.dtype.kind == "f" else 2.0**-7
    scale = np.maximum(np.abs(value.astype(np.float64)), step)
    moved: np.ndarray = (value + scale * step * rng.choice([-1.0, 1.0], value.shape)).astype(value.dtype)
    return moved
