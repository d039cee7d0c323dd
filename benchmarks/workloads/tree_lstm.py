"""A TreeLSTM over binary trees that come as arrays: each example has its own shape of tree.

A node is a place in the arrays, children before parents. A leaf has a word and no children; state 0 is zero and stands
for no child, node ``k`` has state ``k + 1``. The root is the last node.
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
MAX_NODES = 2 * MAX_LEAVES - 1
VOCABULARY = 1_000
WIDTH = 64
UNITS = 128
CLASSES = 5
#: Stands for no word.
NO_WORD = VOCABULARY


def _initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed=100)
    words = rng.normal(0, 1, (VOCABULARY + 1, WIDTH))
    words[NO_WORD] = 0.0
    bias = np.zeros(5 * UNITS)
    bias[2 * UNITS : 4 * UNITS] = 1.0  # both forget gates
    values = {
        "words": words,
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


def _predict(words: tf.Tensor, left: tf.Tensor, right: tf.Tensor, n_nodes: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: words, left, right int32 [39]; n_nodes scalar; probabilities [5]."""
    w = _weights()
    from_words = tf.gather(w["words"], words) @ w["inputs"] + w["bias"]
    states = tf.TensorArray(tf.float32, size=MAX_NODES + 1, element_shape=[2 * UNITS], clear_after_read=False)
    states = states.write(0, tf.zeros([2 * UNITS]))
    node = tf.constant(0)
    while node < n_nodes:
        hidden_l, cell_l = tf.split(states.read(left[node]), 2)
        hidden_r, cell_r = tf.split(states.read(right[node]), 2)
        gates = from_words[node] + tf.tensordot(tf.concat([hidden_l, hidden_r], 0), w["children"], 1)
        write, read, keep_l, keep_r, news = tf.split(gates, 5)
        cell = tf.sigmoid(write) * tf.tanh(news) + tf.sigmoid(keep_l) * cell_l + tf.sigmoid(keep_r) * cell_r
        states = states.write(node + 1, tf.concat([tf.sigmoid(read) * tf.tanh(cell), cell], 0))
        node += 1
    root = states.read(n_nodes)[:UNITS]
    return {"probabilities": tf.nn.softmax(tf.tensordot(root, w["head"], 1))}


def _by_hand(words: tf.Tensor, left: tf.Tensor, right: tf.Tensor, n_nodes: tf.Tensor) -> dict[str, tf.Tensor]:
    """Go through the places of all trees at once. Past its root a tree writes states that nobody reads."""
    w = _weights()
    n_rows = words.shape[0]
    from_words = tf.transpose(tf.tensordot(tf.gather(w["words"], words), w["inputs"], 1) + w["bias"], [1, 0, 2])
    row = tf.range(n_rows)
    left, right = tf.transpose(left), tf.transpose(right)

    def step(node: tf.Tensor, states: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        both = tf.gather_nd(states, tf.stack([tf.stack([left[node], right[node]]), tf.stack([row, row])], -1))
        hidden, cell = both[..., :UNITS], both[..., UNITS:]
        gates = from_words[node] + tf.concat([hidden[0], hidden[1]], 1) @ w["children"]
        write, read, keep_l, keep_r, news = tf.split(gates, 5, axis=1)
        new = tf.sigmoid(write) * tf.tanh(news) + tf.sigmoid(keep_l) * cell[0] + tf.sigmoid(keep_r) * cell[1]
        made = tf.concat([tf.sigmoid(read) * tf.tanh(new), new], 1)
        return node + 1, tf.tensor_scatter_nd_update(states, [[node + 1]], [made])

    most = tf.reduce_max(n_nodes)
    start = (tf.constant(0), tf.zeros([MAX_NODES + 1, n_rows, 2 * UNITS]))
    _, states = tf.while_loop(lambda node, _: node < most, step, start)
    root = tf.gather_nd(states, tf.stack([n_nodes, row], 1))[:, :UNITS]
    return {"probabilities": tf.nn.softmax(root @ w["head"])}


def _examples() -> Iterator[dict[str, Any]]:
    """Yield trees of 1 to 20 words, whose neighbours are joined at random until one tree is left."""
    rng = np.random.default_rng(seed=101)
    for _ in range(1_000):
        n_leaves = int(rng.integers(1, MAX_LEAVES + 1))
        words = np.full(MAX_NODES, NO_WORD, np.int32)
        words[:n_leaves] = rng.integers(0, VOCABULARY, n_leaves)
        left, right = np.zeros((2, MAX_NODES), np.int32)
        open_states = [leaf + 1 for leaf in range(n_leaves)]
        n_nodes = n_leaves
        while len(open_states) > 1:
            at = int(rng.integers(len(open_states) - 1))
            left[n_nodes], right[n_nodes] = open_states[at : at + 2]
            n_nodes += 1
            open_states[at : at + 2] = [n_nodes]
        yield {"words": words, "left": left, "right": right, "n_nodes": np.int32(n_nodes)}


_NODES = tf.TensorSpec([MAX_NODES], tf.int32)
TREE_LSTM = Workload(
    name="tree_lstm",
    inputs={"words": _NODES, "left": _NODES, "right": _NODES, "n_nodes": tf.TensorSpec([], tf.int32)},
    predict=_predict,
    by_hand=_by_hand,
    examples=_examples,
    weights=_initial,
)
