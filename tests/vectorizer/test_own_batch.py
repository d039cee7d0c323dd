"""Models for batches whose inside can't be vectorized: they take batches as their authors made them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import BatchDimensionError, BatchFunction, LoopedOpError, OpClass, vectorize

SCALE = tf.constant([1.0, 2.0, 3.0])


def unvectorizable(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """An op without a batched form: what of its input is compressed is known by nobody else."""
    coded = tf.raw_ops.EncodeProto(
        sizes=tf.ones([tf.shape(x)[0], 1], tf.int32),
        values=[tf.cast(tf.reduce_sum(x, axis=1, keepdims=True), tf.int64)],
        field_names=["size"],
        message_type="tensorflow.TensorShapeProto.Dim",
    )
    return {"coded": coded, "scaled": x * SCALE}


@pytest.mark.parametrize("outputs", [("scaled", "coded"), ("coded", "scaled"), None])
def test_an_op_that_cant_be_vectorized_is_served_by_the_models_own_batches(outputs: tuple[str, ...] | None) -> None:
    """Whatever order its outputs are declared in: its batches have them in their own."""
    model = BatchFunction(unvectorizable, name="coder")
    batched = vectorize(model, inputs={"x": spec(3)}, buckets=(1, 4), outputs=outputs)
    assert outputs is None or tuple(each.name for each in batched.outputs) == outputs
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    got = batched(x=rows)
    assert [bytes(each) for each in np.asarray(got["coded"])] == [b"\x08\x03", b"\x08\x0c", b"\x08\x15", b"\x08\x1e"]
    np.testing.assert_array_equal(got["scaled"], rows * SCALE.numpy())
    certificate = batched.certificate
    assert {record.kind for record in certificate.ops} == {OpClass.OWN_BATCH}
    assert "as the model itself takes a batch" in certificate.to_text()


def test_a_function_of_one_example_has_no_batches_to_fall_back_on() -> None:
    def one(x: tf.Tensor) -> Any:
        return unvectorizable(x[None])["coded"][0]

    with pytest.raises(LoopedOpError, match="EncodeProto"):
        vectorize(one, inputs={"x": spec(3)}, buckets=(4,))


def test_a_model_for_one_size_of_batch_has_no_others() -> None:
    model = BatchFunction(unvectorizable, name="coder", batch_size=1)
    with pytest.raises(LoopedOpError, match="EncodeProto"):
        vectorize(model, inputs={"x": spec(3)}, buckets=(4,))


def test_rows_that_depend_on_each_other_are_refused_in_own_batches_too() -> None:
    def mixed(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return unvectorizable(x - tf.reduce_mean(x, axis=0))

    with pytest.raises(BatchDimensionError, match="mixes the rows"):
        vectorize(BatchFunction(mixed, name="coder"), inputs={"x": spec(3)}, buckets=(1, 4))
