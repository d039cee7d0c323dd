"""TensorArrays in loops and branches: one dense tensor for all rows, no loop but the example's own; XLA takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import BUCKETS, ONE_BUCKET, check_loopless
from tests.vectorizer.oracle import spec
from vectorizer import ConversionError, vectorize

ROWS = np.array(
    [[1, 2, 3], [-1, -2, -3], [0, 0, 0], [30, 1, 1], [0.5, -9, 4], [-0.1, 7, 7], [2, 2, 2], [0.3, 0.2, -0.4]],
    np.float32,
)
COUNTS = np.array([3, 0, 5, 1, 2, 5, 4, 1], np.int32)


def hold(
    function: Callable[..., Any],
    inputs: Mapping[str, Sequence[Any]],
    *,
    buckets: Sequence[int] = ONE_BUCKET,
    xla: bool = True,
) -> None:
    """Compare with the function itself at every bucket, and the largest graph with XLA's; count the loops."""
    vectorized = check_loopless(function, inputs, buckets=buckets)
    if not xla:
        return
    graph = vectorized.bucket(buckets[-1])
    batch = {name: tf.constant(np.asarray(values)[: buckets[-1]]) for name, values in inputs.items()}
    compiled = tf.function(graph, jit_compile=True, autograph=False)
    want = graph(**batch)
    for name, got in compiled(**batch).items():
        np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-5)


def test_list_written_at_the_step_is_stacked() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=4)
        for t in tf.range(4):
            x = tf.tanh(x + 1.0)
            made = made.write(t, x)
        return made.stack()

    hold(predict, {"x": ROWS}, buckets=BUCKETS)


def test_list_is_partly_written_where_each_row_stops_at_its_own_step() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=5, element_shape=[3])
        for t in tf.range(n):
            x = x * 0.5 + 1.0
            made = made.write(t, x)
        return made.stack()

    hold(predict, {"x": ROWS, "n": COUNTS})


def test_list_is_written_and_read_at_each_rows_own_index() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        made = tf.TensorArray(tf.float32, size=6)
        for t in tf.range(6):
            made = made.write(t, tf.zeros([3]))
        for t in tf.range(n):
            made = made.write(n - t, x + tf.cast(t, tf.float32) + made.read(n - t))
        return {"all": made.stack(), "own": made.read(n)}

    hold(predict, {"x": ROWS, "n": COUNTS}, buckets=BUCKETS)


def test_one_write_without_a_loop() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        made = tf.TensorArray(tf.float32, size=6, element_shape=[3]).write(n, x)
        return {"all": made.stack(), "some": made.gather([1, 3]), "next": made.read((n + 1) % 6)}

    hold(predict, {"x": ROWS, "n": COUNTS})


def test_two_writes_in_a_step_and_a_read_of_the_last_step() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made = (
            tf.TensorArray(tf.float32, size=8, element_shape=[], clear_after_read=False).write(0, x[0]).write(1, x[1])
        )
        t = tf.constant(2)
        while t < 8 and made.read(t - 1) < 9.0:
            made = made.write(t, made.read(t - 1) + made.read(t - 2) + 1.0)
            t += 1
        return made.stack()

    hold(predict, {"x": ROWS})


def test_values_read_from_a_list_are_an_index() -> None:
    """A row that has left must not follow what it wrote in its last step: it is out of range."""

    def predict(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        places = tf.TensorArray(tf.int32, size=1, clear_after_read=False).write(0, n - n)
        total = tf.constant(0.0)
        while places.read(0) < 3:
            total += x[places.read(0)]
            places = places.write(0, places.read(0) + 1 + tf.abs(n % 4))
        return {"total": total, "place": places.read(0)}

    hold(predict, {"x": ROWS, "n": COUNTS})


def test_row_that_has_left_does_not_follow_the_shared_counter_out_of_range() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        made = tf.TensorArray(tf.float32, size=3, element_shape=[])
        total = tf.constant(0.0)
        for t in tf.range(n):
            value = tf.gather(x, n - 1 - t)
            made = made.write(n - 1 - t, value + 1.0)
            total = total * 0.5 + value
        return {"total": total, "back": made.stack()}

    hold(predict, {"x": ROWS, "n": COUNTS % 4})


def test_row_that_has_left_divides_by_what_an_active_row_reads() -> None:
    def predict(n: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.int32, size=9, element_shape=[], clear_after_read=False)
        made = made.scatter([1, 2, 3, 4, 5, 6, 7, 8], tf.range(1, 9) + n - n)
        total = tf.constant(0)
        for t in tf.range(n):
            total += 100 // made.read(n - t)
        return total

    hold(predict, {"n": COUNTS}, xla=False)


def test_list_written_in_a_branch() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=3, element_shape=[])
        for t in tf.range(3):
            if x[t] > 0.0:
                made = made.write(t, x[t])
            else:
                made = made.write(2 - t, tf.exp(x[t]))
        return made.stack()

    hold(predict, {"x": ROWS})


def test_list_written_in_a_branch_or_not_in_a_loop_of_each_rows_length() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=5, element_shape=[3])
        for t in tf.range(n):
            if x[t % 3] > 0.0:
                made = made.write(t, x * tf.cast(t, tf.float32))
        return made.stack()

    hold(predict, {"x": ROWS, "n": COUNTS}, buckets=BUCKETS)


@pytest.mark.long
def test_lists_in_loops_in_each_other() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=15, element_shape=[])
        for t in tf.range(n):
            for k in tf.range(3):
                if x[k] > 1.5:
                    break
                made = made.write(t * 3 + k, x[k] + tf.cast(t, tf.float32))
        return made.stack()

    hold(predict, {"x": ROWS, "n": COUNTS})


def test_inner_list_is_new_in_each_step() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([3])
        for t in tf.range(n):
            made = tf.TensorArray(tf.float32, size=3)
            for k in tf.range(3):
                made = made.write(k, x[k] * tf.cast(t, tf.float32))
            total += made.stack()
        return total

    hold(predict, {"x": ROWS, "n": COUNTS})


def test_map_fn() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(lambda value: value * tf.reduce_sum(x), x)

    hold(predict, {"x": ROWS})


@pytest.mark.long
def test_map_fn_whose_steps_loop_for_each_row() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        def halved(value: tf.Tensor) -> tf.Tensor:
            while tf.abs(value) > 1.0:
                value = value / 2.0
            return value

        return tf.map_fn(halved, x)

    hold(predict, {"x": ROWS})


def test_map_fn_over_what_all_examples_share() -> None:
    table = tf.constant(np.arange(12, dtype=np.float32).reshape(4, 3))

    def predict(x: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(lambda row: tf.reduce_sum(row * x), table)

    hold(predict, {"x": ROWS})


def test_scan() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        total, most = tf.scan(lambda a, v: (a[0] * 0.5 + v, tf.maximum(a[1], v)), x, (tf.constant(0.0), x[0]))
        return {"total": total, "most": most, "back": tf.scan(lambda a, v: a + v, x, reverse=True)}

    hold(predict, {"x": ROWS}, buckets=BUCKETS)


def test_list_that_grows_by_one_in_each_step() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for t in tf.range(4):
            x = tf.tanh(x) + 1.0
            made = made.write(t, x)
        return made.stack()

    hold(predict, {"x": ROWS})


def test_list_that_grows_while_a_counter_is_small() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=1, dynamic_size=True).write(0, x)
        t = tf.constant(1)
        while t <= 7:
            x = tf.tanh(x) + 1.0
            made = made.write(t, x)
            t += 2
        return made.stack()

    hold(predict, {"x": ROWS})


def test_list_that_grows_in_a_python_loop() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for t in range(3):
            made = made.write(t, x * t)
        return tf.concat([made.stack(), made.stack()], 0)

    hold(predict, {"x": ROWS})


def _decode(made: tf.TensorArray, x: tf.Tensor, most: int) -> tuple[tf.TensorArray, tf.Tensor]:
    token, state, t = tf.constant(1), x, tf.constant(0)
    while t < most and token != 0:
        state = tf.tanh(state * 1.7 + tf.one_hot(token, 3))
        token = tf.argmax(state, output_type=tf.int32)
        made = made.write(t, token)
        t += 1
    return made, t


@pytest.mark.parametrize("grows", [False, True])
def test_greedy_decoding_stops_at_each_rows_end_token(*, grows: bool) -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        made, t = _decode(tf.TensorArray(tf.int32, size=6, dynamic_size=grows, element_shape=[]), x, 6)
        return {"tokens": tf.ensure_shape(made.stack(), [6]), "length": t}

    hold(predict, {"x": ROWS}, buckets=BUCKETS)


def test_decoding_into_a_list_of_each_rows_length_is_refused_with_a_hint() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made, _ = _decode(tf.TensorArray(tf.int32, size=0, dynamic_size=True), x, 6)
        return made.stack()

    with pytest.raises(ConversionError, match=r"largest size, tf\.TensorArray\(dtype, size=n\)"):
        vectorize(predict, inputs={"x": spec(3)}, buckets=(2,))


def test_list_that_grows_now_and_then_is_refused() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[])
        for t in tf.range(3):
            if x[t] > 0.0:
                made = made.write(t, x[t])
        return made.stack()

    with pytest.raises(ConversionError, match="largest size"):
        vectorize(predict, inputs={"x": spec(3)}, buckets=(2,))


def test_list_that_grows_where_its_length_is_read_is_refused() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[])
        for t in tf.range(3):
            made = made.write(t, x[t] + tf.cast(made.size(), tf.float32))
        return made.stack()

    with pytest.raises(ConversionError, match="largest size"):
        vectorize(predict, inputs={"x": spec(3)}, buckets=(2,))


def test_list_of_each_rows_size_is_refused_with_a_hint() -> None:
    def sized(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=n + 1, element_shape=[3])
        return tf.reduce_sum(made.write(n, x).stack())

    inputs = {"x": spec(3), "n": spec(dtype=tf.int32)}
    with pytest.raises(ConversionError, match="size depends on the example"):
        vectorize(sized, inputs=inputs, buckets=(2,))


def test_write_beyond_the_end_fails_as_the_example_does() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return tf.TensorArray(tf.float32, size=6, element_shape=[3]).write(n, x).stack()

    vectorized = vectorize(predict, inputs={"x": spec(3), "n": spec(dtype=tf.int32)}, buckets=(2,))
    with pytest.raises(tf.errors.InvalidArgumentError):
        vectorized(x=ROWS[:2], n=np.array([2, 6], np.int32))


def test_strings_in_a_list() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.string, size=5, element_shape=[])
        for t in tf.range(n):
            made = made.write(t, tf.where(x[t % 3] > 0.0, "up", "down"))
        return made.stack()

    hold(predict, {"x": ROWS, "n": COUNTS}, xla=False)


def test_elements_are_concatenated_and_scattered() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        made = tf.TensorArray(tf.float32, size=4, element_shape=[3])
        for t in tf.range(4):
            made = made.write(t, x + tf.cast(t, tf.float32))
        made = made.scatter([1, 2], tf.stack([x, -x]))
        return {"all": tf.ensure_shape(made.concat(), [12]), "size": made.size() + tf.cast(x[0] * 0.0, tf.int32)}

    hold(predict, {"x": ROWS})
