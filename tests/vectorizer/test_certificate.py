"""What a certificate holds, and how it reads."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import Certificate, MadeBy, OpClass, vectorize

TABLE = tf.constant([[0.0, 1.0], [2.0, 3.0]])


def predict(x: tf.Tensor, i: tf.Tensor) -> dict[str, tf.Tensor]:
    row = tf.gather(TABLE, i)
    nearest = tf.raw_ops.NearestNeighbors(points=x[:1, None], centers=x[:, None], k=1)[1]
    return {"y": tf.nn.softmax(x) + row, "nearest": nearest, "zero": tf.zeros([2])}


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return vectorize(
        predict,
        inputs={"x": spec(2), "i": spec(dtype=tf.int32)},
        buckets=(1, 4),
        allow_looped=["NearestNeighbors"],
        examples=[{"x": [1.0, 2.0], "i": 1}],
    ).certificate


def test_each_op_says_who_vectorized_it_and_whether_a_value_can_make_it_fail(certificate: Certificate) -> None:
    ops = {record.op: record for record in certificate.ops}
    assert ops["GatherV2"].converter in (MadeBy.ROWWISE, MadeBy.PFOR)
    assert ops["GatherV2"].can_raise
    assert ops["Softmax"].kind is OpClass.VECTORIZED
    assert not ops["Softmax"].can_raise
    assert ops["Const"].converter is None
    assert [record.op for record in certificate.can_raise if record.op != "NearestNeighbors"] == ["GatherV2"]


def test_looped_op_comes_with_place_reason_and_what_to_write_instead(certificate: Certificate) -> None:
    (record,) = certificate.looped
    assert record.where[0].startswith("test_certificate.py:")
    assert record.reason is not None
    assert record.reason.startswith("its converter does not take these operands: ")
    assert "centers" in record.reason
    assert record.fix is not None
    assert "tf.math.top_k" in record.fix
    assert certificate.loops_batched == certificate.loops_unbatched + 1


def test_examples_are_counted_by_sort_and_refused_ones_too(certificate: Certificate) -> None:
    counts = certificate.probes
    assert counts.yours == 1
    assert min(counts.edge, counts.extreme, counts.random) > 0
    assert certificate.n_probes_refused > 0
    checked = certificate.parity[0].n_examples
    assert checked == counts.yours + counts.edge + counts.extreme + counts.random


def test_every_bucket_is_in_one_group_of_equal_bits(certificate: Certificate) -> None:
    assert sorted(bucket for group in certificate.bitwise_groups for bucket in group) == [(1,), (4,)]


def test_text_has_the_ops_the_fix_and_the_check_of_every_bucket(certificate: Certificate) -> None:
    lines = certificate.to_text().splitlines()
    assert lines[0].startswith("Certificate of predict")
    (nearest,) = [line for line in lines if line.startswith("NearestNeighbors  ")]
    assert nearest.split()[:2] == ["NearestNeighbors", "looped"]
    assert any(line.startswith("  instead: ") for line in lines)
    assert [line.split()[0] for line in lines[-8:] if line[:1].isdigit()] == ["1", "4"]
    assert any("fail on some value of a row" in line and "GatherV2" in line for line in lines)


def test_json_keeps_its_version_and_what_readers_of_it_know(certificate: Certificate) -> None:
    value = json.loads(certificate.to_json())
    assert value["format_version"] == 1
    assert {"function", "tensorflow_version", "ops", "loops_unbatched", "loops_batched", "parity", "summary"} <= set(
        value
    )
    assert {"op", "kind", "count", "where", "reason"} <= set(value["ops"][0])
    assert value["summary"]["looped"] == 1
