"""Recurrent cells and sequences that are one op each, and the loss of aligned sequences (CTC).

Weights are shared, and the example's own batch, mostly of one sequence, takes the rows in.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, same_op, stacked, wrap
from vectorizer.converters.folding import batch_folding, folded, reshape_to, sizes, unfolded
from vectorizer.converters.former_names import folded_blocks

__all__ = ["CONVERTERS"]


def _folded_steps(value: tf.Tensor) -> tf.Tensor:
    """Shapes: [rows, steps, n, *s] -> [steps, rows * n, *s]."""
    rank = value.shape.rank
    return folded_blocks(tf.transpose(value, [1, 0, *range(2, rank)]))


def _unfolded_steps(value: tf.Tensor, rows: Any) -> tf.Tensor:
    """Undo ``_folded_steps``."""
    steps, total, *rest = sizes(value)
    rank = value.shape.rank + 1
    return tf.transpose(reshape_to(value, [steps, rows, total // rows, *rest]), [1, 0, *range(2, rank)])


def _sequence(*, by_step: Collection[int], by_batch: Collection[int]) -> Converter:
    """Return the converter of an op over time: ``by_step`` are [steps, n, *s], ``by_batch`` [n, *s], others shared."""

    def convert(pfor_input: Any) -> Any:
        inputs = []
        for index in range(pfor_input.num_inputs):
            if index in by_step:
                inputs.append(_folded_steps(stacked(pfor_input.input(index), pfor_input)))
            elif index in by_batch:
                inputs.append(folded(stacked(pfor_input.input(index), pfor_input)))
            else:
                inputs.append(pfor_input.unstacked_input(index))
        rows = sizes(stacked(pfor_input.input(min(by_step)), pfor_input))[0]
        return [wrap(_unfolded_steps(output, rows), stacked=True) for output in same_op(pfor_input, inputs)]

    return convert


def _ctc_loss(pfor_input: Any) -> Any:
    """Shapes: logits [rows, steps, n, c], places of labels [rows, k, 2], labels [rows, k], lengths [rows, n]."""
    logits, places, labels, lengths = (stacked(given, pfor_input) for given in pfor_input.inputs)
    rows, _, n, _ = sizes(logits)
    # A place out of range must not become one of the next row's sequence.
    which = places[..., 0]
    first = reshape_to(tf.range(tf.cast(rows, tf.int64)) * tf.cast(n, tf.int64), [rows, 1])
    which = tf.where((which >= 0) & (which < tf.cast(n, tf.int64)), which + first, -1)
    moved = folded(tf.stack([which, places[..., 1]], -1))
    loss, gradient = same_op(pfor_input, [_folded_steps(logits), moved, folded(labels), folded(lengths)])
    return [wrap(unfolded(loss, rows), stacked=True), wrap(_unfolded_steps(gradient, rows), stacked=True)]


CONVERTERS: dict[str, Converter] = {
    "BlockLSTM": _sequence(by_step={1}, by_batch={2, 3}),
    "BlockLSTMV2": _sequence(by_step={1}, by_batch={2, 3}),
    "CTCLoss": _ctc_loss,
    "GRUBlockCell": batch_folding({0, 1}),
    "LSTMBlockCell": batch_folding({0, 1, 2}),
}
