"""A TreeLSTM over binary trees that come as arrays: each example has its own shape of tree.

Leaves have words, inner nodes have two children that come before them. A state is known by its place: leaf ``k`` has
state ``k``, inner node ``k`` has state ``20 + k``. The root is the last inner node, or the only leaf. Leaves are
computed at once, inner nodes one after the other.
Source: K. S. Tai et al., "Improved Semantic Representations From Tree-Structured Long Short-Term Memory Networks",
    2015 (binary TreeLSTM).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.workloads.workload import Workload

__all__ = ["TREE_LSTM"]

MAX_LEAVES = 20
MAX_INNER = MAX_LEAVES - 1
VOCABULARY = 1_000
WIDTH = 64
UNITS = 128
CLASSES = 5


def _initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed=100)
    bias = np.zeros(5 * UNITS)
    bias[2 * UNITS : 4 * UNITS] = 1.0  # both forget gates
    values = {
        "words": rng.normal(0, 1, (VOCABULARY, WIDTH)),
        "inputs": rng.normal(0, WIDTH**-0.5, (WIDTH, 5 * UNITS)),
        "children": rng.normal(0, (2 * UNITS) ** -0.5, (2 * UNITS, 5 * UNITS)),
        "bias": bias,
        "head": rng.normal(0, UNITS**-0.5, (UNITS, CLASSES)),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


@functools.cache
def _weights() -> dict[str, tf.Variable]:
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in _initial().items()}


def _leaves(gates: tf.Tensor) -> tf.Tensor:
    """Shapes: gates [n, 640] -> states [n, 256], hidden beside cell."""
    write, read, _, _, news = tf.split(gates, 5, axis=-1)
    cell = tf.sigmoid(write) * tf.tanh(news)
    return tf.concat([tf.sigmoid(read) * tf.tanh(cell), cell], -1)


def _predict(words: tf.Tensor, left: tf.Tensor, right: tf.Tensor, n_leaves: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: words int32 [20]; left, right int32 [19]; n_leaves scalar; probabilities [5]."""
    w = _weights()
    leaves = _leaves(tf.gather(w["words"], words) @ w["inputs"] + w["bias"])
    states = tf.TensorArray(tf.float32, MAX_LEAVES + MAX_INNER, element_shape=[2 * UNITS], clear_after_read=False)
    states = states.unstack(tf.concat([leaves, tf.zeros([MAX_INNER, 2 * UNITS])], 0))
    inner = tf.constant(0)
    while inner < n_leaves - 1:
        hidden_l, cell_l = tf.split(states.read(left[inner]), 2)
        hidden_r, cell_r = tf.split(states.read(right[inner]), 2)
        gates = tf.tensordot(tf.concat([hidden_l, hidden_r], 0), w["children"], 1) + w["bias"]
        write, read, keep_l, keep_r, news = tf.split(gates, 5)
        cell = tf.sigmoid(write) * tf.tanh(news) + tf.sigmoid(keep_l) * cell_l + tf.sigmoid(keep_r) * cell_r
        states = states.write(MAX_LEAVES + inner, tf.concat([tf.sigmoid(read) * tf.tanh(cell), cell], 0))
        inner += 1
    root = states.read(tf.where(n_leaves > 1, MAX_LEAVES + n_leaves - 2, 0))[:UNITS]
    return {"probabilities": tf.nn.softmax(tf.tensordot(root, w["head"], 1))}


def _by_hand(words: tf.Tensor, left: tf.Tensor, right: tf.Tensor, n_leaves: tf.Tensor) -> dict[str, tf.Tensor]:
    """Go through the inner nodes of all trees at once. Past its root a tree writes states that nobody reads."""
    w = _weights()
    n_rows = words.shape[0]
    inputs = tf.reshape(tf.gather(w["words"], tf.transpose(words)), [-1, WIDTH])
    leaves = tf.reshape(_leaves(tf.nn.bias_add(inputs @ w["inputs"], w["bias"])), [MAX_LEAVES, n_rows, 2 * UNITS])
    row = tf.range(n_rows)
    left, right = tf.transpose(left), tf.transpose(right)

    def step(inner: tf.Tensor, states: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        both = tf.gather_nd(states, tf.stack([tf.stack([left[inner], right[inner]]), tf.stack([row, row])], -1))
        hidden, cell = both[..., :UNITS], both[..., UNITS:]
        gates = tf.nn.bias_add(tf.concat([hidden[0], hidden[1]], 1) @ w["children"], w["bias"])
        write, read, keep_l, keep_r, news = tf.split(gates, 5, axis=1)
        new = tf.sigmoid(write) * tf.tanh(news) + tf.sigmoid(keep_l) * cell[0] + tf.sigmoid(keep_r) * cell[1]
        made = tf.concat([tf.sigmoid(read) * tf.tanh(new), new], 1)
        return inner + 1, tf.tensor_scatter_nd_update(states, [[MAX_LEAVES + inner]], [made])

    most = tf.reduce_max(n_leaves) - 1
    start = (tf.constant(0), tf.concat([leaves, tf.zeros([MAX_INNER, n_rows, 2 * UNITS])], 0))
    _, states = tf.while_loop(lambda inner, _: inner < most, step, start)
    place = tf.where(n_leaves > 1, MAX_LEAVES + n_leaves - 2, 0)
    root = tf.gather_nd(states, tf.stack([place, row], 1))[:, :UNITS]
    return {"probabilities": tf.nn.softmax(root @ w["head"])}


def _examples() -> Iterator[dict[str, Any]]:
    """Yield trees of 1 to 20 words, whose neighbours are joined at random until one tree is left."""
    rng = np.random.default_rng(seed=101)
    for _ in range(1_000):
        n_leaves = int(rng.integers(1, MAX_LEAVES + 1))
        words = np.zeros(MAX_LEAVES, np.int32)
        words[:n_leaves] = rng.integers(0, VOCABULARY, n_leaves)
        left, right = np.zeros((2, MAX_INNER), np.int32)
        joined = list(range(n_leaves))
        for inner in range(n_leaves - 1):
            at = int(rng.integers(len(joined) - 1))
            left[inner], right[inner] = joined[at : at + 2]
            joined[at : at + 2] = [MAX_LEAVES + inner]
        yield {"words": words, "left": left, "right": right, "n_leaves": np.int32(n_leaves)}


_CHILDREN = tf.TensorSpec([MAX_INNER], tf.int32)
TREE_LSTM = Workload(
    name="tree_lstm",
    inputs={
        "words": tf.TensorSpec([MAX_LEAVES], tf.int32),
        "left": _CHILDREN,
        "right": _CHILDREN,
        "n_leaves": tf.TensorSpec([], tf.int32),
    },
    predict=_predict,
    by_hand=_by_hand,
    examples=_examples,
    weights=_initial,
)
