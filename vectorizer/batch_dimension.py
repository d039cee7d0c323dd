"""The batch dimension of what is written for batches: recognized, and proved to be one.

A Keras model, and most signatures of SavedModels, take many examples at once. A batch of one stands for an example
(``batch_function.py``). That is right only if a row's answer depends on that row alone, and not on how many there are:
``check_rows_are_independent`` runs a batch of probes through the function as it was given, and compares each row with
the row alone. ``x - mean(x, axis=0)`` is 0 for each row alone, and would be served as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import tensorflow as tf

from vectorizer.errors import BatchDimensionError, DeclarationError, ProbeError
from vectorizer.lengths import Length, length_axes
from vectorizer.parity import compare, tolerance_of
from vectorizer.probes import Probe, as_array, make_probes, shown
from vectorizer.trace import ExampleFunction

__all__ = ["check_batch_dimension", "check_rows_are_independent", "has_batch_dimension"]

#: Rows of the batch that is compared with its rows alone: enough to differ, few enough for large models.
_MAX_ROWS = 8
_IF_SEQUENCE = (
    ". If its first dimension is that of a sequence, declare the inputs of one example, with its largest size as 'max'"
)
#: Size of a variable dimension whose largest size is not known here.
_DRAWN_LENGTH = 8


def has_batch_dimension(
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.TensorSpec],
    *,
    examples: Mapping[str, Sequence[int | None]] | None,
    asked: bool | None = None,
) -> bool:
    """Return whether a signature's first dimension is that of a batch.

    ``examples`` are the declared shapes of one example by input, None where nothing is declared; ``asked`` is what the
    user said, and goes first.
    Errors: DeclarationError if that can't be told, or does not fit.
    """
    said = f"the signature takes {_shown(inputs)} and gives {_shown(outputs)}"
    if asked is False:
        return False
    if examples is not None:
        return _as_declared(inputs, outputs, examples, asked=asked, said=said)
    led = all(_leads(spec) for spec in (*inputs.values(), *outputs.values()))
    if asked:
        if not led:
            raise DeclarationError(f"batch_dimension: {said}, so that there is none to take off")
        return True
    if led and any(spec.shape.rank is None for spec in inputs.values()):
        raise DeclarationError(
            f"{said}: whether there is a batch dimension can't be told. Declare the inputs of one example, with the "
            "largest size as 'max' where it varies, or say batch_dimension: true"
        )
    # Of any size, all of them: a batch, by TensorFlow's convention for what is exported. That of a sequence can't be
    # served undeclared in any case, and its rows are found to depend on each other.
    return led and any(spec.shape[0] is None for spec in inputs.values())


def _as_declared(
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.TensorSpec],
    examples: Mapping[str, Sequence[int | None]],
    *,
    asked: bool | None,
    said: str,
) -> bool:
    as_is = {name for name, spec in inputs.items() if spec.shape.is_compatible_with(examples[name])}
    batched = {
        name
        for name, spec in inputs.items()
        if _leads(spec)
        and spec.shape.rank == len(examples[name]) + 1
        and spec.shape[1:].is_compatible_with(examples[name])
    }
    if batched == inputs.keys() and all(_leads(spec) for spec in outputs.values()):
        return True
    if as_is == inputs.keys() and not asked:
        return False
    name = min(inputs, key=lambda name: (name in as_is) + (name in batched))
    raise DeclarationError(
        f"input {name!r}: the spec says {inputs[name].dtype.name}{list(examples[name])} for one example; {said}. That "
        "fits neither as it is nor with a batch dimension, of any size, in front of every input and output"
    )


def _leads(spec: tf.TensorSpec) -> bool:
    """Return whether the first dimension may be that of a batch: of any size, or of one."""
    shape = spec.shape
    return shape.rank is None or (shape.rank > 0 and shape[0] in (None, 1))


def _shown(specs: Mapping[str, tf.TensorSpec]) -> str:
    return ", ".join(f"{name} {spec.dtype.name}{spec.shape}" for name, spec in specs.items())


def check_batch_dimension(function: ExampleFunction, *, seed: int = 0) -> None:
    """Refuse a function of batches whose rows depend on each other, judged by examples that are drawn here.

    A function that answers none of them is not judged: whoever vectorizes it has examples, or refuses it.
    Errors: BatchDimensionError.
    """
    if function.batch is None:
        return
    lengths = {
        name: Length(max=_DRAWN_LENGTH) for name, spec in function.inputs.items() if not spec.shape.is_fully_defined()
    }
    with suppress(ProbeError):
        probes = make_probes(function, length_axes(function.inputs, lengths), examples=(), seed=seed)
        check_rows_are_independent(function, probes.ordinary, tolerance=None)


def check_rows_are_independent(function: ExampleFunction, probes: Sequence[Probe], *, tolerance: float | None) -> None:
    """Refuse a function of batches whose rows depend on each other, judged by running ``probes`` together.

    Errors: BatchDimensionError naming the output, the row and both answers.
    """
    batch = function.batch
    if batch is None or batch.batch_size == 1:
        return
    lengths = [probe.lengths for probe in probes]
    most = max(lengths, key=lengths.count)
    fitting = [probe for probe in probes if probe.lengths == most][-_MAX_ROWS:]
    n_rows = batch.batch_size or max(2, len(fitting))
    rows = [fitting[slot % len(fitting)] for slot in range(n_rows)]
    stacked = {name: tf.constant(np.stack([row.example[name] for row in rows])) for name in function.inputs}
    try:
        results = batch.of_batch(stacked)
    except (tf.errors.OpError, ValueError) as error:
        raise BatchDimensionError(
            f"{function.name} answers examples one by one, but not {n_rows} of them in a batch, so its first dimension "
            f"is no batch's: {type(error).__name__}: {str(error).splitlines()[0]}{_IF_SEQUENCE}"
        ) from error
    for index, (name, value) in enumerate(function.named_batch(results).items()):
        array = as_array(value)
        if array.shape[:1] != (n_rows,):
            raise BatchDimensionError(
                f"{function.name}: for a batch of {n_rows}, output {name!r} has the shape {list(array.shape)}: it has "
                "no row for each example, so it can't be served by the example"
            )
        want = [row.answers[index] for row in rows]
        have = [array[slot, ...] for slot in range(n_rows)]
        allowed = tolerance_of(value.dtype, tolerance)
        _, bad = compare(name, want, have, tolerance=allowed)
        if bad is not None:
            raise BatchDimensionError(
                f"{function.name} mixes the rows of a batch: output {name!r} of the example {shown(rows[bad].example)} "
                f"is {np.array2string(want[bad], threshold=8, edgeitems=3)} alone and "
                f"{np.array2string(have[bad], threshold=8, edgeitems=3)} as row {bad} of {n_rows}. A mean over the "
                "batch, normalization in training mode or a reshape across rows does that; write it for one example"
                f"{_IF_SEQUENCE}"
            )
