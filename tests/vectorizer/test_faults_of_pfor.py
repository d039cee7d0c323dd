"""What stock pfor gets wrong, one test for each symptom: that it is still there, and what is done here instead.

A test that fails in its first half says that TensorFlow has mended something, and that a converter may go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import check, spec
from vectorizer import LoopedOpError, vectorize
from vectorizer.batched_graph import batched_graph
from vectorizer.converters import converters
from vectorizer.converters.raising import raising_ops
from vectorizer.loops import count_loops, count_ops
from vectorizer.trace import trace_example
from vectorizer.vectorized import Bucket

RNG = np.random.default_rng(13)
ROWS = 3
TABLE = tf.Variable(RNG.normal(size=(6, 4)).astype(np.float32))
KERNEL = tf.constant(RNG.normal(size=(2, 2, 2, 1)).astype(np.float32))
IMAGE = spec(4, 4, 2)
INDEX = spec(dtype=tf.int32)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep pfor's warnings about what it loops off the report."""
    logging.getLogger("tensorflow").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("tensorflow").setLevel(logging.WARNING)


def stock(function: Callable[..., Any], *specs: tf.TensorSpec, **options: Any) -> Any:
    """Return the graph that ``tf.vectorized_map`` makes of a function of one example."""
    stacked = [tf.TensorSpec([ROWS, *given.shape], given.dtype) for given in specs]

    def mapped(*tensors: tf.Tensor) -> Any:
        return tf.vectorized_map(lambda row: function(*row), tensors, **options)

    return tf.function(mapped).get_concrete_function(*stacked).graph.as_graph_def()


def ours(function: Callable[..., Any], *specs: tf.TensorSpec) -> Any:
    """Return the graph that is made here; an op that would run once for each row has no place in it."""
    names = [f"operand_{index}" for index in range(len(specs))]
    body = trace_example(lambda **given: function(*given.values()), dict(zip(names, specs, strict=True)))
    graph, log = batched_graph(body, Bucket(rows=ROWS, lengths=()), converters())
    assert not log.looped(), log.looped()
    return graph.graph.as_graph_def()


def stock_loops_or_fails(function: Callable[..., Any], *specs: tf.TensorSpec) -> bool:
    try:
        return count_loops(stock(function, *specs)) > 0
    except Exception:  # noqa: BLE001 - whatever pfor dies of
        return True


def fused_norm(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.compat.v1.nn.fused_batch_norm(x[None], y, y, y, y + 2.0, is_training=False)[0]


HIDDEN_LOOPS: dict[str, tuple[Callable[..., Any], tuple[tf.TensorSpec, ...]]] = {
    # 1
    "depthwise convolution with a shared filter": (
        lambda x: tf.nn.depthwise_conv2d(x[None], KERNEL, [1, 1, 1, 1], "SAME"),
        (IMAGE,),
    ),
    # 2
    "embedding in a variable": (lambda x: tf.gather(TABLE, x), (spec(3, dtype=tf.int32),)),
    # 3
    "filter of each example": (lambda x, y: tf.nn.conv2d(x[None], y, 1, "SAME"), (IMAGE, spec(2, 2, 2, 3))),
    "part that begins at an index of each example": (lambda x, y: x[y : y + 2], (spec(5), INDEX)),
    "element at an index of each example": (lambda x, y: x[y], (spec(5), INDEX)),
    "batch normalization with a scale of each example": (fused_norm, (IMAGE, spec(2))),
    "contrast of each example": (tf.image.adjust_contrast, (spec(4, 4, 3), spec())),
    "hue of each example": (tf.image.adjust_hue, (spec(4, 4, 3), spec())),
    "saturation of each example": (tf.image.adjust_saturation, (spec(4, 4, 3), spec())),
    "diagonal of a matrix": (tf.linalg.tensor_diag, (spec(2, 3),)),
    # 4
    "resizing": (lambda x: tf.image.resize(x, [3, 3]), (IMAGE,)),
    "colours": (tf.image.rgb_to_hsv, (spec(4, 4, 3),)),
    "convolution in three dimensions": (
        lambda x: tf.nn.conv3d(x[None], tf.ones([2, 2, 2, 1, 1]), [1] * 5, "SAME"),
        (spec(3, 3, 3, 1),),
    ),
    "mirrored padding": (lambda x: tf.pad(x, [[1, 1]], "REFLECT"), (spec(3),)),
    "scattered updates": (
        lambda x, y: tf.tensor_scatter_nd_add(x, y[:, None], x[:2]),
        (spec(3), spec(2, dtype=tf.int32)),
    ),
    "segments": (lambda x: tf.math.segment_mean(x, [0, 0, 1]), (spec(3),)),
    "histogram": (lambda x: tf.raw_ops.HistogramFixedWidth(values=x, value_range=[0.0, 1.0], nbins=5), (spec(4),)),
    "numbers evenly spaced": (lambda x: tf.raw_ops.LinSpace(start=x, stop=x + 1.0, num=4), (spec(),)),
    "determinants and decompositions": (
        lambda x: (tf.linalg.det(x), tf.linalg.qr(x).r, tf.linalg.svd(x)[0]),
        (spec(3, 3),),
    ),
    "texts": (lambda x: tf.strings.to_number(tf.strings.lower(x)), (spec(dtype=tf.string),)),
}


@pytest.mark.parametrize("what", HIDDEN_LOOPS)
def test_stock_pfor_runs_it_once_for_each_row_or_fails_and_here_it_runs_once(what: str) -> None:
    function, specs = HIDDEN_LOOPS[what]
    assert stock_loops_or_fails(function, *specs)
    assert count_loops(ours(function, *specs)) == 0


# 5


def choose(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.switch_case(y, [lambda: (x, x + 1.0), lambda: (x * 2.0, x)], default=lambda: (-x, -x))


def test_choice_of_two_outputs_fails_and_here_an_index_out_of_range_takes_the_default_branch() -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever pfor dies of
        stock(choose, spec(), INDEX)
    check(choose, {"x": np.arange(8.0, dtype=np.float32), "y": np.int32([0, 1, 2, -1, 9, 0, 1, 7])})


# 6


def decode(x: tf.Tensor) -> tf.Tensor:
    """Add tokens until there are four: the array grows as they come."""
    tokens, i = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[]), tf.constant(0)
    _, tokens = tf.while_loop(
        lambda i, _: i < 4, lambda i, t: (i + 1, t.write(i, x * tf.cast(i, tf.float32))), (i, tokens)
    )
    return tokens.stack()


def test_list_that_grows_in_a_loop_fails_and_here_it_is_stacked() -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011
        tf.vectorized_map(decode, tf.ones([ROWS]))
    check(decode, {"x": np.arange(8.0, dtype=np.float32)})


def test_list_that_is_read_at_an_index_of_each_row_fails_and_here_it_is_gathered() -> None:
    def read(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.TensorArray(tf.float32, 3).unstack(x).read(tf.clip_by_value(y, 0, 2))

    with pytest.raises(Exception):  # noqa: B017, PT011
        stock(read, spec(3, 2), INDEX)
    values = RNG.normal(size=(8, 3, 2)).astype(np.float32)
    check(read, {"x": values, "y": np.int32([0, 1, 2, 0, 1, 2, 2, 1])})


# 7


def halve(x: tf.Tensor) -> tf.Tensor:
    """Write a loop as Python has it."""
    steps = 0
    while x > 1.0 and steps < 9:
        x, steps = x / 2.0, steps + 1
    if x > 0.6:
        x = -x
    return x


def test_python_loop_on_a_tensor_raises_and_here_it_is_traced_through_autograph() -> None:
    with pytest.raises(Exception, match="bool"):
        tf.vectorized_map(tf.autograph.experimental.do_not_convert(halve), tf.ones([ROWS]))
    check(halve, {"x": np.float32([1, 5, 0.5, -2, 8, 100, 0, 3])})


# 8


def test_saved_function_with_a_branch_and_a_loop_fails_and_here_it_is_vectorized(tmp_path: Path) -> None:
    module = tf.Module()
    module.halve = tf.function(halve, input_signature=[spec()])
    tf.saved_model.save(module, str(tmp_path), signatures=module.halve)
    loaded = tf.saved_model.load(str(tmp_path))
    with pytest.raises(Exception):  # noqa: B017, PT011
        tf.vectorized_map(loaded.halve, tf.ones([ROWS]))
    signature = loaded.signatures["serving_default"]
    vectorized = vectorize(signature, inputs={"x": spec()}, buckets=(4,))
    values = np.float32([1, 5, 0.5, -2])
    expected = [next(iter(signature(x=tf.constant(x)).values())).numpy() for x in values]
    np.testing.assert_allclose(next(iter(vectorized(x=values).values())), expected)


# 11


def test_squeeze_takes_the_rows_off_a_batch_of_one_and_here_bucket_one_keeps_them() -> None:
    mapped = tf.function(lambda x: tf.vectorized_map(tf.squeeze, x), input_signature=[tf.TensorSpec([None, 1, 3])])
    assert mapped(tf.ones([2, 1, 3])).shape == (2, 3)
    assert mapped(tf.ones([1, 1, 3])).shape == (3,)
    check(tf.function(lambda x: tf.squeeze(x, name="rows")), {"x": np.ones([8, 1, 3], np.float32)}, buckets=(1, 4))


# 12


def test_bad_row_fails_its_neighbours_and_here_the_op_that_can_fail_is_known() -> None:
    def pick(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.tanh(x), y)

    values = tf.ones([ROWS, 2])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.vectorized_map(lambda row: pick(*row), (values, tf.constant([0, 1, 7])))
    body = trace_example(pick, {"x": spec(2), "y": INDEX})
    _, log = batched_graph(body, Bucket(rows=ROWS, lengths=()), converters())
    assert [op.type for op in raising_ops(log.conversions)] == ["GatherV2"]


# 13


def test_loop_inside_a_function_is_not_warned_of_and_here_it_is_named() -> None:
    inner = tf.function(lambda x: tf.raw_ops.SerializeTensor(tensor=x))
    assert count_loops(stock(inner, spec(3), fallback_to_while_loop=True)) > 0
    with pytest.raises(LoopedOpError) as caught:
        vectorize(inner, inputs={"x": spec(3)}, buckets=(2,))
    assert set(caught.value.ops) == {"SerializeTensor"}


# 14


def test_forbidden_loops_stay_where_a_converter_hides_them_and_here_there_is_none() -> None:
    function, operand = tf.linalg.tensor_diag, spec(2, 3)
    assert count_loops(stock(function, operand, fallback_to_while_loop=False)) > 0
    assert count_loops(ours(function, operand)) == 0


# 15


def test_eager_call_traces_each_time_and_here_only_the_build_does() -> None:
    traces = []

    def twice(x: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return x * 2.0

    for _ in range(3):
        tf.vectorized_map(twice, tf.ones([ROWS]))
    assert len(traces) >= 3
    vectorized = vectorize(twice, inputs={"x": spec()}, buckets=(2,))
    n_of_the_build = len(traces)
    for _ in range(3):
        vectorized(x=np.ones(2, np.float32))
    assert len(traces) == n_of_the_build


# 16


def test_shared_matrix_times_a_vector_is_turned_about_the_product_and_here_it_is_one_product() -> None:
    matrix = tf.constant(RNG.normal(size=(3, 4)).astype(np.float32))

    def project(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(matrix, x, transpose_a=True)

    assert count_ops(stock(project, spec(3)))["Transpose"] > 0
    made = count_ops(ours(project, spec(3)))
    assert (made["MatMul"], made["Transpose"]) == (1, 0)
    assert not any(op.startswith("BatchMatMul") for op in made)
