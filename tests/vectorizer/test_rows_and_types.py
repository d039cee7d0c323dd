"""Any number of rows, any shape of example, any dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import check, spec
from vectorizer import Bucket, DeclarationError, OpClass, vectorize

RNG = np.random.default_rng(0)
X = RNG.normal(size=(23, 3)).astype(np.float32)


def test_more_rows_than_the_largest_bucket_are_split() -> None:
    check(lambda x: tf.cumsum(x, 0), {"x": X}, n_rows=(1, 2, 4, 5, 7, 8, 23))


def test_no_rows_give_no_rows_of_the_right_shape() -> None:
    vectorized = vectorize(
        lambda x: {"y": x[:2], "s": tf.strings.as_string(x)[0]},
        inputs={"x": spec(3)},
        buckets=(2,),
        allow_looped=["AsString"],
    )
    empty = vectorized(x=np.zeros((0, 3), np.float32))
    assert empty["y"].shape == (0, 2)
    assert empty["y"].dtype == np.float32
    assert empty["s"].shape == (0,)


def test_bucket_is_a_concrete_function_over_named_rows() -> None:
    vectorized = vectorize(lambda x: {"y": x + 1.0}, inputs={"x": spec(3)}, buckets=(4, 1, 4))
    assert vectorized.buckets == (1, 4)
    graph = vectorized.bucket(4)
    assert graph.structured_outputs["y"].shape.as_list() == [4, 3]
    np.testing.assert_array_equal(graph(x=tf.ones([4, 3]))["y"], np.full((4, 3), 2.0))
    with pytest.raises(DeclarationError, match="no bucket of 3 rows"):
        vectorized.bucket(3)
    assert str(Bucket(rows=4, lengths=(8, 2))) == "bucket 4x8x2"


def test_buckets_share_the_functions_variables() -> None:
    weight = tf.Variable(2.0)
    vectorized = vectorize(lambda x: x * weight, inputs={"x": spec(3)}, buckets=(1, 4))
    weight.assign(5.0)
    np.testing.assert_allclose(vectorized(x=X[:5]), X[:5] * 5.0)


def test_leading_dimension_of_one_is_not_taken_for_the_rows() -> None:
    check(lambda x: x * tf.constant([[1.0], [2.0]]), {"x": X[:, None]}, buckets=(1, 2, 4))
    check(lambda x, y: x + y, {"x": X[:, :1], "y": X}, buckets=(1, 2))


@pytest.mark.parametrize(
    "squeeze",
    [
        lambda x: tf.squeeze(x, None),
        lambda x: tf.squeeze(x, 0),
        lambda x: tf.squeeze(x, -1),
        lambda x: tf.squeeze(x, [0, 2]),
    ],
)
def test_squeeze_never_takes_the_rows(squeeze: Any) -> None:
    check(squeeze, {"x": X[:, None, :, None]}, buckets=(1, 2))


def test_squeeze_in_a_branch_never_takes_the_rows() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        if x[0, 0] > 0:
            y = tf.squeeze(x) * 2.0
        else:
            y = tf.squeeze(x)
        return y

    check(predict, {"x": X[:, None]}, buckets=(1, 2))


@pytest.mark.parametrize("size", [0, 1])
def test_examples_of_no_or_one_element(size: int) -> None:
    check(lambda x: {"x": x, "sum": tf.reduce_sum(x)}, {"x": np.ones((7, size), np.float32)})


def test_output_that_does_not_depend_on_the_example_is_there_for_each_row() -> None:
    vectorized = check(lambda x: {"constant": tf.constant([1.0, 2.0]), "n": tf.shape(x)[0]}, {"x": X})
    assert vectorized(x=X[:5])["constant"].shape == (5, 2)
    assert vectorized.certificate.count(OpClass.INVARIANT) >= 1


def test_input_that_is_returned_as_it_came_and_one_that_is_not_used() -> None:
    check(lambda x, unused: x, {"x": X, "unused": X})


@pytest.mark.parametrize("returned", [list, tuple])
def test_unnamed_outputs_are_numbered(returned: Any) -> None:
    vectorized = check(lambda x: returned([x, x + 1.0]), {"x": X})
    assert list(vectorized(x=X[:1])) == ["output_0", "output_1"]


def test_named_tuple_gives_its_fields_names() -> None:
    vectorized = check(lambda x: tf.math.top_k(x, 2), {"x": X})
    assert list(vectorized(x=X[:1])) == ["values", "indices"]


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ],
)
def test_every_dtype_comes_through_as_scalar_and_array(dtype: str) -> None:
    numpy_dtype = tf.as_dtype(dtype).as_numpy_dtype
    scalar, array = np.array([0, 1, 1, 0, 1]).astype(numpy_dtype), np.ones((5, 2), numpy_dtype)
    vectorized = vectorize(
        lambda s, a: {"s": s, "a": tf.reverse(a, [0])},
        inputs={"s": tf.TensorSpec([], numpy_dtype), "a": tf.TensorSpec([2], numpy_dtype)},
        buckets=(2,),
    )
    got = vectorized(s=scalar, a=array)
    assert got["s"].dtype == got["a"].dtype == numpy_dtype
    assert got["s"].tobytes() == scalar.tobytes()
    assert got["a"].shape == (5, 2)


def test_strings_keep_every_byte_as_scalar_and_array() -> None:
    words = np.array([b"a\0", b"", "hören".encode(), b"\xff\xfe", b"a long one \0\0"], object)
    vectorized = vectorize(
        lambda s, a: {"s": s, "a": tf.reverse(a, [0])},
        inputs={"s": spec(dtype=tf.string), "a": spec(2, dtype=tf.string)},
        buckets=(1, 2),
    )
    got = vectorized(s=words, a=np.stack([words, words[::-1]], 1))
    assert got["s"].tolist() == words.tolist()
    assert got["a"][1].tolist() == [words[3], words[1]]
    assert vectorized(s=["hören"], a=[["x", "y"]])["s"][0] == "hören".encode()


SENT: dict[str, tuple[Any, str]] = {
    "too short": (np.zeros((2, 2)), r"input 'x' of row 0: expected float32\[3\], got the shape \[2\]"),
    "one element, which would broadcast": (np.zeros((2, 1)), r"got the shape \[1\]"),
    "too long": (np.zeros((2, 4)), r"got the shape \[4\]"),
    "another rank": (np.zeros((2, 3, 1)), r"got the shape \[3, 1\]"),
    "one row is wrong": ([[1, 2, 3], [1, 2]], r"of row 1.*got the shape \[2\]"),
    "ragged row": ([[1, [2], 3]], "of row 0: expected float32"),
    "text": ([["a", "b", "c"]], "got values of type"),
    "not rows at all": (5, "expected rows along the first dimension"),
}


@pytest.mark.parametrize("case", SENT)
def test_rows_that_do_not_fit_are_refused_and_never_padded(case: str) -> None:
    value, message = SENT[case]
    with pytest.raises(DeclarationError, match=message):
        FIXED(x=value)


FIXED = vectorize(lambda x: x, inputs={"x": spec(3)}, buckets=(2,))


@pytest.mark.parametrize("inputs", [{}, {"y": X}, {"x": X, "y": X}])
def test_missing_and_unknown_inputs_are_named(inputs: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=r"expected the inputs \['x'\]"):
        FIXED(**inputs)


def test_integers_refuse_what_they_cannot_hold() -> None:
    vectorized = vectorize(lambda x: x, inputs={"x": spec(dtype=tf.uint8)}, buckets=(2,))
    assert vectorized(x=[0, 255]).tolist() == [0, 255]
    for value in (1.5, 1.0, 256, -1):
        with pytest.raises(DeclarationError, match=r"of row 1: expected uint8"):
            vectorized(x=[0, value])


def test_inputs_with_different_numbers_of_rows_are_refused() -> None:
    vectorized = vectorize(lambda x, y: x + y, inputs={"x": spec(3), "y": spec(3)}, buckets=(2,))
    with pytest.raises(DeclarationError, match="different numbers of rows"):
        vectorized(x=X[:2], y=X[:3])


def test_look_ups_in_a_variable_are_one_gather() -> None:
    table = tf.Variable(RNG.normal(size=(10, 4)).astype(np.float32))
    vectorized = check(
        lambda i: {"one": tf.gather(table, i[0]), "all": tf.nn.embedding_lookup(table, i)},
        {"i": RNG.integers(0, 8, (7, 2)).astype(np.int32)},
    )
    assert vectorized.certificate.loops_batched == 0
    assert vectorized.certificate.n_probes_refused > 0


@pytest.mark.parametrize(
    "product",
    [
        lambda x: tf.linalg.matvec(W, x),
        lambda x: tf.linalg.matvec(tf.transpose(W), x, transpose_a=True),
        lambda x: tf.squeeze(x[None] @ tf.transpose(W), 0),
        lambda x: tf.matmul(W, x[:, None]),
        lambda x: tf.matmul(x[:, None], W, transpose_a=True, transpose_b=True),
        lambda x: tf.matmul(W, x[None], transpose_b=True),
        lambda x: tf.einsum("ij,j->i", W, x),
        lambda x: tf.matmul(tf.stack([x, x]), W, transpose_b=True),
    ],
)
def test_products_of_a_matrix_and_each_rows_vector(product: Any) -> None:
    check(product, {"x": X}, n_rows=(1, 2, 7))


W = tf.constant(RNG.normal(size=(2, 3)).astype(np.float32))


def test_bias_is_added_along_its_own_dimension() -> None:
    """A square product: a bias of the same size fits along either of its dimensions."""
    square = tf.constant(RNG.normal(size=(3, 3)).astype(np.float32))
    bias = tf.constant([1.0, 2.0, 3.0])
    check(lambda x: tf.matmul(tf.stack([x, x, x]), square) + bias, {"x": X}, buckets=(1, 3))
    check(lambda x: bias + tf.linalg.matvec(square, x), {"x": X}, buckets=(1, 3))
    check(lambda x: tf.matmul(square, x[:, None]) + bias[:, None], {"x": X}, buckets=(1, 3))
