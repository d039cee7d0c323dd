"""Along a sequence: ReverseSequence and CumulativeLogsumexp."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import folded, sizes, unfolded

__all__ = ["CONVERTERS"]


def _reverse_sequence(pfor_input: Any) -> Any:
    value, lengths = (stacked(given, pfor_input) for given in pfor_input.inputs)
    batch_dim, seq_dim = pfor_input.get_attr("batch_dim"), pfor_input.get_attr("seq_dim")
    rank = pfor_input.op.inputs[0].shape.rank
    if rank is None:
        not_for_these("the number of dimensions is not known")
    batch_dim, seq_dim = batch_dim % rank, seq_dim % rank
    order = [0, batch_dim + 1, *(dim + 1 for dim in range(rank) if dim != batch_dim)]
    turned = tf.transpose(value, order)
    reversed_ = tf.raw_ops.ReverseSequence(
        input=folded(turned),
        seq_lengths=folded(lengths),
        # In the example the batch dimension was in front of the others, or behind some of them.
        seq_dim=seq_dim + 1 if seq_dim < batch_dim else seq_dim,
        batch_dim=0,
    )
    back = [order.index(dim) for dim in range(rank + 1)]
    return wrap(tf.transpose(unfolded(reversed_, sizes(value)[0]), back), stacked=True)


def _cumulative_logsumexp(pfor_input: Any) -> Any:
    value, axis = pfor_input.stacked_input(0), pfor_input.unstacked_input(1)
    moved = axis + tf.cast(axis >= 0, axis.dtype)
    known = known_operand(pfor_input, 1)
    if known is not None:
        moved = tf.constant(int(known) + (known >= 0), axis.dtype)
    return wrap(same_op(pfor_input, [value, moved])[0], stacked=True)


CONVERTERS: dict[str, Converter] = {
    "CumulativeLogsumexp": _cumulative_logsumexp,
    "ReverseSequence": _reverse_sequence,
}
