"""Stateless random ops whose seed, key, counter or bounds differ from row to row.

TensorFlow's own converters run the kernel in a loop over the rows. Here the stream of every row is made at once, in
integer ops, and gives each row the numbers that the kernel gives for its seed. XLA's own kernels for these ops give
other floats than TensorFlow's; these are the same in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, constant_of, not_for_these, wrap
from vectorizer.converters.asserts import assert_rows
from vectorizer.converters.folding import reshape_to, sizes
from vectorizer.converters.philox import philox_blocks, scrambled
from vectorizer.converters.random_transforms import PER_BLOCK, integers, integers_between, normals, uniforms

__all__ = ["CONVERTERS", "Streams"]

_PHILOX = 1
_CHOSEN_BY_DEVICE = 3
#: TensorFlow reserves as many words for each truncated number.
_RESERVED = 256
#: Blocks that are drawn for a group of truncated normals, by how many a block gives. A group would need more with a
#: probability of 1e-20; each number is thrown away with one of 0.0455.
_TRIED_BLOCKS = {2: 8, 4: 5}
_TRUNCATED_AT = 2.0


@dataclass(frozen=True, slots=True)
class Streams:
    """Where the random streams of all rows start. Shapes: uint64 [rows, 1], or [1, 1] if all rows share it."""

    key: tf.Tensor
    low: tf.Tensor
    high: tf.Tensor
    #: The lower half of the counter is known to be far from its end.
    is_early: bool

    @classmethod
    def of_seed(cls, seed: tf.Tensor) -> Streams:
        """Shapes: int32 or int64 [rows, 2]."""
        key, counter = scrambled(seed)
        return cls(key, counter[:, :1], counter[:, 1:], is_early=True)

    def blocks(self, numbers: tf.Tensor) -> tf.Tensor:
        """Return the blocks at the places ``numbers``. Shapes: int64 [n] -> uint64 [rows, n, 2]."""
        low = self.low + tf.cast(numbers, tf.uint64)
        high = self.high if self.is_early else self.high + tf.cast(low < self.low, tf.uint64)
        return philox_blocks(self.key, low, high)


#: Makes numbers of the blocks of all rows: [rows, n, 2] -> [rows, n, PER_BLOCK].
_Transform = Callable[[tf.Tensor], tf.Tensor]


def _drawn(pfor_input: Any, streams: Streams, transform: _Transform) -> Any:
    """Fill the op's shape with consecutive numbers of each stream."""
    count, shape = _count(pfor_input)
    per_block = PER_BLOCK[pfor_input.outputs[0].dtype]
    blocks = streams.blocks(tf.range((count + per_block - 1) // per_block, dtype=tf.int64))
    return _cut(transform(blocks), count, shape)


def _truncated(pfor_input: Any, streams: Streams) -> Any:
    """Fill with normals of absolute value below 2: each group takes the first of those that its blocks give."""
    dtype = pfor_input.outputs[0].dtype
    count, shape = _count(pfor_input)
    group = PER_BLOCK[dtype]
    n_groups = (count + group - 1) // group
    starts = tf.range(n_groups, dtype=tf.int64) * (group * _RESERVED // 4)
    numbers = starts[:, None] + tf.range(_TRIED_BLOCKS[group], dtype=tf.int64)
    # The kernel decides before it rounds to a short dtype.
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    tried = normals(streams.blocks(tf.reshape(numbers, [-1])), wide)
    rows = sizes(tried)[0]
    tried = reshape_to(tried, [rows, n_groups, _TRIED_BLOCKS[group] * group])
    taken = tf.cumsum(tf.cast(tf.abs(tried) < tf.constant(_TRUNCATED_AT, wide), tf.int32), axis=-1)
    # The place of the k-th that is taken: how many come before it.
    wanted = tf.range(1, group + 1)
    places = tf.reduce_sum(tf.cast(taken[..., None, :] < wanted[:, None], tf.int32), axis=-1)
    return _cut(tf.cast(tf.gather(tried, places, batch_dims=2), dtype), count, shape)


def _count(pfor_input: Any) -> tuple[Any, Any]:
    """Return how many numbers a row gets, and their shape: known, or as tensors."""
    value = pfor_input.input(0)
    if value.is_stacked:
        not_for_these("the shape differs from row to row; draw the largest that may be needed and slice it")
    shape = pfor_input.outputs[0].shape
    if shape.is_fully_defined():
        return shape.num_elements(), shape.as_list()
    return tf.cast(tf.reduce_prod(value.t), tf.int64), value.t


def _cut(numbers: tf.Tensor, count: Any, shape: Any) -> Any:
    """Shapes: [rows, n, PER_BLOCK] -> [rows, *shape]."""
    rows, *_ = sizes(numbers)
    flat = tf.reshape(numbers, [rows, -1])[:, :count]
    whole = [rows, *shape] if isinstance(shape, list) else tf.concat([[rows], tf.cast(shape, tf.int32)], axis=0)
    return wrap(tf.reshape(flat, whole), stacked=True)


def _rows(value: Any) -> tf.Tensor:
    """Return a value for each row, or for all of them as the only one."""
    tensor: tf.Tensor = value.t if value.is_stacked else tf.expand_dims(value.t, 0)
    return tensor


def _given(pfor_input: Any) -> Streams:
    """Return the streams that a key and a counter say."""
    _, key, counter, algorithm = pfor_input.inputs[:4]
    known = constant_of(pfor_input.op.inputs[3])
    if algorithm.is_stacked or (known is not None and int(known) not in (_PHILOX, _CHOSEN_BY_DEVICE)):
        not_for_these("its algorithm is not Philox, the one that TensorFlow's CPU kernels have")
    start = constant_of(pfor_input.op.inputs[2])
    is_early = pfor_input.op.inputs[2].op.type in _GET_KEY or (start is not None and int(start[0]) < 2**63)
    counters = _rows(counter)
    return Streams(_rows(key), counters[:, :1], counters[:, 1:2], is_early)


def _seeded(pfor_input: Any) -> Streams:
    return Streams.of_seed(_rows(pfor_input.input(1)))


def _bounded(bounds: tuple[int, int], pfor_input: Any, streams: Streams) -> Any:
    low, high = (reshape_to(_rows(pfor_input.input(position)), [-1, 1, 1]) for position in bounds)
    valid = [constant_of(pfor_input.op.inputs[position]) for position in bounds]
    if valid[0] is None or valid[1] is None or not valid[0] < valid[1]:
        bounds_said = [tf.as_string(low + tf.zeros_like(high)), tf.as_string(high + tf.zeros_like(low))]
        said = tf.strings.join(["Need minval < maxval, got ", bounds_said[0], " >= ", bounds_said[1]])
        assert_rows(tf.reshape(low < high, [-1]), [tf.reshape(said, [-1])])
    return _drawn(pfor_input, streams, partial(integers_between, low=low, high=high))


def _free(transform: Callable[..., tf.Tensor], pfor_input: Any, streams: Streams) -> Any:
    return _drawn(pfor_input, streams, partial(transform, dtype=pfor_input.outputs[0].dtype))


def _converter(streams: Callable[[Any], Streams], fill: Callable[[Any, Streams], Any]) -> Converter:
    return lambda pfor_input: fill(pfor_input, streams(pfor_input))


def _key_counter(pfor_input: Any) -> Any:
    key, counter = scrambled(pfor_input.stacked_input(0))
    made = [wrap(key, stacked=True), wrap(counter, stacked=True)]
    return [*made, wrap(tf.constant(_PHILOX), stacked=False)] if len(pfor_input.outputs) == 3 else made


def _algorithm(_pfor_input: Any) -> Any:
    # Stateful by registration, for it depends on the device.
    return wrap(tf.constant(_PHILOX), stacked=False)


_GET_KEY = frozenset({"StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg"})
_FILLS: dict[str, Callable[[Any, Streams], Any]] = {
    "StatelessRandomNormal": partial(_free, normals),
    "StatelessRandomUniform": partial(_free, uniforms),
    "StatelessRandomUniformFullInt": partial(_free, integers),
    "StatelessTruncatedNormal": _truncated,
}

CONVERTERS: dict[str, Converter] = {
    **{name: _converter(_seeded, fill) for name, fill in _FILLS.items()},
    **{name + "V2": _converter(_given, fill) for name, fill in _FILLS.items()},
    "StatelessRandomUniformInt": _converter(_seeded, partial(_bounded, (2, 3))),
    "StatelessRandomUniformIntV2": _converter(_given, partial(_bounded, (4, 5))),
    "StatelessRandomGetAlg": _algorithm,
    **dict.fromkeys(sorted(_GET_KEY), _key_counter),
}
