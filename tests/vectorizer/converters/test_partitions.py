"""Loops and branches on fewer rows give what they give on the whole batch, whoever leaves when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import one_by_one
from vectorizer import Bucket, Vectorized, vectorize
from vectorizer.loops import count_loops

#: A loop of 8 rows shrinks to 6, 4 and 2 rows.
ROWS = 8
WEIGHTS = tf.constant(np.random.default_rng(1).normal(0, 0.4, (4, 4)).astype(np.float32))


@pytest.fixture
def lengths() -> np.ndarray:
    """Lengths by which rows leave one by one, several at once, at the start, and two together at the end."""
    return np.array([0, 1, 9, 4, 7, 2, 4, 9], np.int32)


def check_partitioned(
    function: Callable[..., Any], inputs: Mapping[str, Sequence[Any]], *, buckets: Sequence[int] = (ROWS,)
) -> Vectorized:
    """Compare the partitioned graph of a full bucket with the function; a bucket of one row has none."""
    arrays = {name: np.asarray(values) for name, values in inputs.items()}
    specs = {name: tf.TensorSpec(array.shape[1:], tf.as_dtype(array.dtype)) for name, array in arrays.items()}
    vectorized = vectorize(function, inputs=specs, buckets=buckets, partitioned=True)
    assert list(vectorized.partitioned) == [Bucket(rows=ROWS)]
    made = partitioned(vectorized)(**{name: tf.constant(array) for name, array in arrays.items()})
    for row, expected in enumerate(one_by_one(function, arrays)):
        for have, want in zip(made.values(), expected, strict=True):
            np.testing.assert_allclose(have[row], want, rtol=1e-5, atol=1e-5)
    return vectorized


def partitioned(vectorized: Vectorized) -> Any:
    return vectorized.partitioned[Bucket(rows=ROWS)]


def vectors(rows: int = ROWS, *shape: int) -> np.ndarray:
    return np.random.default_rng(2).normal(0, 1, (rows, *(shape or (4,)))).astype(np.float32)


def test_rows_that_leave_at_different_steps_keep_what_they_left_with(lengths: np.ndarray) -> None:
    def recurrent(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        state = tf.zeros([4])
        step = tf.constant(0)
        while step < n:
            state = tf.tanh(tf.tensordot(state, WEIGHTS, 1) + x[step])
            step += 1
        return {"state": state, "steps": step}

    x = vectors(ROWS, 9, 4)
    vectorized = check_partitioned(recurrent, {"x": x, "n": lengths}, buckets=(1, ROWS))
    assert count_loops(partitioned(vectorized).graph.as_graph_def()) == 4
    assert count_loops(vectorized.bucket(ROWS).graph.as_graph_def()) == 1
    # All at once at the end, and nobody at all.
    for n in (np.full(ROWS, 9, np.int32), np.zeros(ROWS, np.int32)):
        got = partitioned(vectorized)(x=tf.constant(x), n=tf.constant(n))
        np.testing.assert_array_equal(got["steps"], n)
        np.testing.assert_allclose(got["state"][5], recurrent(tf.constant(x[5]), tf.constant(n[5]))["state"], rtol=1e-5)


def test_xla_compiles_it_to_the_same_answers(lengths: np.ndarray) -> None:
    def recurrent(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(n):
            x = tf.tanh(tf.tensordot(x, WEIGHTS, 1))
        return x

    x = vectors()
    graph = partitioned(check_partitioned(recurrent, {"x": x, "n": lengths}))
    compiled = tf.function(lambda x, n: graph(x=x, n=n)["output"], jit_compile=True)
    np.testing.assert_allclose(
        compiled(tf.constant(x), tf.constant(lengths)),
        graph(x=tf.constant(x), n=tf.constant(lengths))["output"],
        rtol=1e-5,
    )


def test_what_is_written_to_a_list_before_and_after_the_cut_is_all_there(lengths: np.ndarray) -> None:
    def trace(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        states = tf.TensorArray(tf.float32, size=9, element_shape=[4])
        kept = tf.TensorArray(tf.float32, size=9, element_shape=[4]).write(0, x)
        for step in tf.range(n):
            x = tf.tanh(tf.tensordot(x, WEIGHTS, 1)) + kept.read(0)
            kept = kept.write(0, x)
            states = states.write(step, x)
        return states.stack()

    check_partitioned(trace, {"x": vectors(), "n": lengths})


def test_index_of_a_row_that_has_left_can_not_raise(lengths: np.ndarray) -> None:
    def backwards(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([4])
        step = tf.constant(0)
        while step < n:
            total = tf.tanh(tf.tensordot(total, WEIGHTS, 1)) + tf.gather(x, n - 1 - step)
            step += 1
        return total

    check_partitioned(backwards, {"x": vectors(ROWS, 9, 4), "n": lengths})


def test_loop_in_a_branch_and_a_loop_in_it_shrink_too(lengths: np.ndarray) -> None:
    def nested(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        if n > 1:
            for step in tf.range(tf.minimum(n, 9)):
                x = tf.tanh(tf.tensordot(x, WEIGHTS, 1))
                inner = tf.constant(0)
                while inner < step:
                    x = tf.tanh(tf.tensordot(x, WEIGHTS, 1))
                    inner += 1
        return x

    check_partitioned(nested, {"x": vectors(), "n": lengths})


def test_what_makes_a_sequence_is_computed_in_the_steps_that_read_it_unless_all_of_it_is_wanted(
    lengths: np.ndarray,
) -> None:
    wide = tf.constant(np.random.default_rng(4).normal(0, 0.4, (3, 4)).astype(np.float32))

    def recurrent(x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        alone = tf.matmul(x, wide) + tf.constant([0.1, 0.2, 0.3, 0.4])
        wanted = tf.matmul(x, -wide)
        state = tf.zeros([4])
        step = tf.constant(0)
        while step < n:
            state = tf.tanh(tf.tensordot(state, WEIGHTS, 1) + alone[step] + tf.gather(wanted, step))
            step += 1
        return state, wanted, step

    x = vectors(ROWS, 9, 3)
    graph = partitioned(check_partitioned(recurrent, {"x": x, "n": lengths}))
    bodies = [f for f in graph.graph.as_graph_def().library.function if "while_body" in f.signature.name]
    assert [sum(node.op == "MatMul" for node in body.node_def) for body in bodies] == [2] * 4
    with pytest.raises(tf.errors.OpError):
        graph(x=tf.constant(x), n=tf.constant(lengths + 1))


def test_list_of_states_read_and_written_row_by_row_keeps_all_rows_while_they_leave(lengths: np.ndarray) -> None:
    def tree(x: tf.Tensor, side: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        states = tf.TensorArray(tf.float32, 18, element_shape=[4], clear_after_read=False)
        states = states.unstack(tf.concat([x, tf.zeros([9, 4])], 0))
        step = tf.constant(0)
        while step < n:
            made = tf.tanh(tf.tensordot(states.read(side[step]), WEIGHTS, 1) + states.read(step))
            states = states.write(9 + step, made)
            step += 1
        return states.read(tf.where(n > 0, 8 + n, 0))

    x = vectors(ROWS, 9, 4)
    side = (np.random.default_rng(5).integers(0, 9, (ROWS, 9)) + np.arange(9)).astype(np.int32)
    vectorized = check_partitioned(tree, {"x": x, "side": side, "n": lengths})
    # No step and no shrinking copies the list: nothing is chosen from it as a whole.
    whole = (18, ROWS, 4)
    graph_def = partitioned(vectorized).graph.as_graph_def(add_shapes=True)
    for function in graph_def.library.function:
        copying = [node for node in function.node_def if node.op in ("GatherV2", "Select", "SelectV2", "Transpose")]
        shapes = [tuple(dim.size for dim in node.attr["_output_shapes"].list.shape[0].dim) for node in copying]
        assert whole not in shapes


@pytest.mark.parametrize("n_taking", [0, 1, 2, 3, ROWS])
def test_branch_that_few_rows_take_runs_on_those(n_taking: int) -> None:
    def choose(x: tf.Tensor, taken: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
        if taken:
            return tf.tensordot(x, WEIGHTS, 1) + tf.gather(x, at)
        return -x

    taken = np.random.default_rng(3).permutation(np.arange(ROWS) < n_taking)
    # The place is out of range where it is not looked up.
    check_partitioned(choose, {"x": vectors(), "taken": taken, "at": np.where(taken, 3, 99).astype(np.int32)})


def test_small_batches_and_cheap_work_stay_whole() -> None:
    def cheap(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(n):
            x = x * 0.5
        return x

    def costly(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(n):
            x = tf.tensordot(x, WEIGHTS, 1)
        return x

    specs = {"x": tf.TensorSpec([4]), "n": tf.TensorSpec([], tf.int32)}
    assert not vectorize(cheap, inputs=specs, buckets=(ROWS,), partitioned=True).partitioned
    assert not vectorize(costly, inputs=specs, buckets=(7,), partitioned=True).partitioned
    assert not vectorize(costly, inputs=specs, buckets=(ROWS,)).partitioned
