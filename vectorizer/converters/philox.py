"""Philox 4x32-10 over many keys and counters at once, in integer ops that CPU kernels and XLA both have.

TensorFlow's kernels draw one stream for one key. Here every row has a key of its own and the ten rounds run over all
rows and blocks together. A block's four words are kept in two 64-bit integers, ``c1 + (c0 << 32)`` and
``c3 + (c2 << 32)``: the 64-bit product of a round is then at once the next low word in place and the next high word
but for two exclusive ors.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the layout of keys and
counters is that of TensorFlow's ``StatelessRandom*V2``, and ``scrambled`` that of its seeds.
"""

from __future__ import annotations

import tensorflow as tf

from vectorizer.converters.folding import sizes

__all__ = ["as_words", "philox_blocks", "scrambled", "swapped"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
#: What is added to the two words of the key after each round.
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
#: The same for each round, in the upper half of 64 bits.
_ADDED = [[(number * weyl << 32) & (2**64 - 1) for number in range(_ROUNDS)] for weyl in _WEYL]
_HIGH_WORD = 0xFFFFFFFF << 32
#: The key under which TensorFlow mixes a user's seed.
_SEED_KEY = 0x3EC8F720 + (0x02461E29 << 32)


def _u64(value: int) -> tf.Tensor:
    return tf.constant(value & (2**64 - 1), tf.uint64)


def _left(value: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.left_shift(value, _u64(bits))


def _right(value: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(value, _u64(bits))


def _xor(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(a, b)


def swapped(pairs: tf.Tensor) -> tf.Tensor:
    """Exchange the two words of each 64-bit integer."""
    return tf.bitwise.bitwise_or(_left(pairs, 32), _right(pairs, 32))


def philox_blocks(key: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Return the block at each counter: words 0 and 2 are the high halves of its two integers, 1 and 3 the low ones.

    Shapes: uint64 key, low and high half of the counter, broadcast to [*s] -> uint64 [*s, 2].
    """
    half, multipliers = _u64(32), [_u64(multiplier) for multiplier in _MULTIPLIERS]
    keys = [
        tf.unstack(part[..., tf.newaxis] + tf.constant(added, tf.uint64), axis=-1)
        for part, added in zip((_left(key, 32), tf.bitwise.bitwise_and(key, _u64(_HIGH_WORD))), _ADDED, strict=True)
    ]
    state = [swapped(low), swapped(high)]
    for round_keys in zip(*keys, strict=True):
        products = [
            tf.bitwise.right_shift(pair, half) * multiplier for pair, multiplier in zip(state, multipliers, strict=True)
        ]
        state = [
            _xor(_xor(tf.bitwise.left_shift(pair, half), round_key), product)
            for pair, round_key, product in zip(state, round_keys, reversed(products), strict=True)
        ]
    first, second = state
    return tf.stack(_alike(first, second), axis=-1)


def _alike(first: tf.Tensor, second: tf.Tensor) -> list[tf.Tensor]:
    """Broadcast both to one shape: what depends on fewer things has fewer dimensions until the rounds mix them."""
    if first.shape.is_fully_defined() and first.shape == second.shape:
        return [first, second]
    return [first + tf.zeros_like(second), second + tf.zeros_like(first)]


def as_words(blocks: tf.Tensor) -> tf.Tensor:
    """Return the words of blocks in their order. Shapes: uint64 [*s, 2] -> uint32 [*s, 4]."""
    words = tf.bitcast(swapped(blocks), tf.uint32)
    *outer, _, _ = sizes(words)
    return tf.reshape(words, [*outer, 4])


def scrambled(seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the key and the counter that TensorFlow makes of a seed.

    Shapes: int32 or int64 [*s, 2] -> uint64 [*s, 1] and [*s, 2].
    """
    seed = tf.bitcast(tf.cast(seed, tf.int64), tf.uint64)
    blocks = swapped(philox_blocks(_u64(_SEED_KEY), seed[..., 0], seed[..., 1]))
    counter = tf.stack([tf.zeros_like(blocks[..., 1]), blocks[..., 1]], axis=-1)
    return blocks[..., :1], counter
