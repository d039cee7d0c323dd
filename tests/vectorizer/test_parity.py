"""The check that decides whether a batched graph may be served."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import Bucket, ConversionError, OpClass, ParityError, Vectorized, vectorize, verify_bucket
from vectorizer._pfor import wrap
from vectorizer.parity import compare, tolerance_of, ulp_distance
from vectorizer.vectorized import run_concrete

X = {"x": spec(3)}


@pytest.fixture(scope="module")
def small() -> Vectorized:
    return vectorize(lambda x: {"y": x * 2.0, "n": tf.argmax(x)}, inputs=X, buckets=(1, 4))


def verify(vectorized: Vectorized, run: Callable[[Any], Any], *, rows: int = 4) -> Any:
    return verify_bucket(
        vectorized.function,
        vectorized.axes,
        vectorized.outputs,
        bucket=Bucket(rows=rows),
        run=run,
        probes=vectorized.probes,
        tolerance=None,
    )


def test_right_graph_passes_and_the_record_says_how_closely(small: Vectorized) -> None:
    record = verify(small, run_concrete(small.bucket(4)))
    assert (record.rows, record.lengths) == (4, ())
    assert record.n_examples == len(small.probes) >= 32
    assert [output.name for output in record.outputs] == ["y", "n"]
    assert record.max_abs == 0.0
    assert all(output.bitwise_equal for output in record.outputs)
    assert record.outputs[0].max_ulp == 0
    assert record.outputs[1].max_ulp is None


def swapped(outputs: dict[str, np.ndarray]) -> None:
    outputs["y"] = outputs["y"][::-1]


def off_in_one_row(outputs: dict[str, np.ndarray]) -> None:
    outputs["y"][3, 1] += 1.0


def nan_in_one_row(outputs: dict[str, np.ndarray]) -> None:
    outputs["y"][2] = np.nan


def other_index(outputs: dict[str, np.ndarray]) -> None:
    outputs["n"] += 1


def one_dimension_less(outputs: dict[str, np.ndarray]) -> None:
    outputs["y"] = outputs["y"][:, 0]


@pytest.mark.parametrize("spoil", [swapped, off_in_one_row, nan_in_one_row, other_index, one_dimension_less])
def test_wrong_answer_in_any_row_and_output_is_caught(small: Vectorized, spoil: Callable[[Any], None]) -> None:
    graph = run_concrete(small.bucket(4))

    def run(inputs: Any) -> Any:
        outputs = {name: value.copy() for name, value in graph(inputs).items()}
        spoil(outputs)
        return outputs

    with pytest.raises(ParityError, match=r"bucket 4 answers otherwise than the function itself. Output '[yn]'"):
        verify(small, run)


def test_answer_to_a_neighbour_is_caught_though_each_row_is_right_alone(small: Vectorized) -> None:
    """A graph that adds row 0 to every row: only a batch of different examples shows it."""
    graph = run_concrete(small.bucket(4))

    def run(inputs: Any) -> Any:
        outputs = dict(graph(inputs))
        outputs["y"] = outputs["y"] + outputs["y"][:1] * 0.01
        return outputs

    with pytest.raises(ParityError):
        verify(small, run)


def test_batch_that_raises_where_the_function_answers_is_caught(small: Vectorized) -> None:
    def run(inputs: Any) -> Any:
        raise tf.errors.InvalidArgumentError(None, None, "indices[3] = 9\n\t [[{{node Gather}}]]")

    with pytest.raises(ParityError, match=r"InvalidArgumentError: indices\[3\] = 9"):
        verify(small, run)


def wrong_sigmoid(pfor_input: Any) -> Any:
    return wrap(tf.math.sigmoid(pfor_input.stacked_input(0)) * 1.01, stacked=True)


def raising_sigmoid(pfor_input: Any) -> Any:
    raise KeyError("no such table")


def test_wrong_converter_never_gets_through() -> None:
    assert vectorize(lambda x: tf.sigmoid(x) + x, inputs=X, buckets=(2,))
    with pytest.raises(ParityError, match="bucket 2 answers otherwise"):
        vectorize(lambda x: tf.sigmoid(x) + x, inputs=X, buckets=(2,), converters={"Sigmoid": wrong_sigmoid})


def test_failing_converter_names_the_op_and_keeps_the_cause() -> None:
    with pytest.raises(ConversionError, match=r"op Sigmoid \(test_parity.py:\d+\).*bucket 2.*no such table") as caught:
        vectorize(lambda x: tf.sigmoid(x) + x, inputs=X, buckets=(2,), converters={"Sigmoid": raising_sigmoid})
    assert isinstance(caught.value.__cause__, KeyError)


def test_tolerance_can_be_widened_for_floats_and_never_for_integers() -> None:
    slightly_wrong = {"Sigmoid": wrong_sigmoid}
    vectorized = vectorize(
        lambda x: tf.sigmoid(x) + x, inputs=X, buckets=(2,), converters=slightly_wrong, tolerance=0.1
    )
    assert 0.001 < vectorized.certificate.parity[0].max_abs < 0.1
    with pytest.raises(ParityError):
        vectorize(
            lambda x: tf.cast(tf.sigmoid(x) * 1e6, tf.int32),
            inputs=X,
            buckets=(2,),
            converters=slightly_wrong,
            tolerance=0.1,
        )
    assert tolerance_of(tf.int64, 0.5) == tolerance_of(tf.string, 0.5) == 0.0
    assert tolerance_of(tf.float32, None) < tolerance_of(tf.bfloat16, None)


def rows(*values: Any, dtype: Any = np.float32) -> list[np.ndarray]:
    return [np.asarray(value, dtype) for value in values]


@pytest.mark.parametrize(
    ("want", "have", "bad"),
    [
        (rows([1.0, 2.0]), rows([1.0, 2.00001]), None),
        (rows([1.0, 2.0]), rows([1.0, 2.1]), 0),
        (rows([1.0], [1.0]), rows([1.0], [2.0]), 1),
        # The error of a sum is that of its largest term.
        (rows([1e6, 1.0]), rows([1e6, 1.01]), None),
        (rows([0.0]), rows([1e-6]), None),
        (rows([0.0]), rows([1e-3]), 0),
        (rows([np.nan, 1.0]), rows([np.nan, 1.0]), None),
        (rows([np.nan]), rows([1.0]), 0),
        (rows([1.0]), rows([np.nan]), 0),
        (rows([np.inf, -np.inf]), rows([np.inf, -np.inf]), None),
        (rows([np.inf]), rows([-np.inf]), 0),
        (rows([np.inf]), rows([3e38]), 0),
        (rows([0.0]), rows([-0.0]), None),
        (rows([1.0, 2.0]), rows([[1.0, 2.0]]), 0),
        (rows([]), rows([]), None),
    ],
)
def test_rows_are_compared_by_the_largest_magnitude_in_the_row(want: Any, have: Any, bad: int | None) -> None:
    report, found = compare("y", want, have, tolerance=1e-4)
    assert found == bad
    assert math.isfinite(report.max_abs)
    assert math.isfinite(report.max_relative)


@pytest.mark.parametrize(
    ("want", "have"),
    [
        (np.array([2**53 + 1]), np.array([2**53])),
        (np.array([True]), np.array([False])),
        (np.array([b"a"], object), np.array([b"a\0"], object)),
        (np.array([1 + 1j], np.complex64), np.array([1 - 1j], np.complex64)),
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.5], ml_dtypes.bfloat16)),
    ],
)
def test_other_dtypes_are_told_apart(want: np.ndarray, have: np.ndarray) -> None:
    assert compare("y", [want], [want.copy()], tolerance=1e-2)[1] is None
    assert compare("y", [want], [have], tolerance=1e-2)[1] == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ulp_distance_counts_the_numbers_in_between(dtype: Any) -> None:
    one = np.ones(2, dtype)
    up = np.nextafter(one, dtype(2))
    tiny = np.nextafter(np.zeros(1, dtype), dtype(1))
    assert ulp_distance(one, one) == 0
    assert ulp_distance(one, up) == ulp_distance(up, one) == 1
    assert ulp_distance(tiny, -tiny) == 2
    assert ulp_distance(np.zeros(1, dtype), -np.zeros(1, dtype)) == 0
    largest = np.array([np.finfo(dtype).max])
    assert ulp_distance(largest, -largest) == 2 * int(largest.view(f"i{largest.itemsize}")[0])
    assert ulp_distance(np.array([np.nan, 1], dtype), np.array([1, 1], dtype)) == 0


def test_ulp_distance_is_nothing_where_there_are_no_steps() -> None:
    assert ulp_distance(np.array([1]), np.array([5])) == 0
    assert ulp_distance(np.zeros(0, np.float32), np.zeros(0, np.float32)) == 0


def test_certificate_is_plain_json_with_a_summary() -> None:
    vectorized = vectorize(
        lambda x: {"y": tf.math.log(x) / x, "c": tf.constant(1)},
        inputs=X,
        buckets=(1, 2),
        examples=[{"x": [np.inf, np.nan, 0.0]}],
    )
    certificate = vectorized.certificate
    value = json.loads(certificate.to_json(), parse_constant=lambda token: pytest.fail(f"{token} in JSON"))
    assert value["function"].endswith("<lambda>")
    assert value["tensorflow_version"] == tf.__version__
    assert value["summary"]["buckets_checked"] == len(value["parity"]) == 2
    assert value["summary"]["vectorized"] == certificate.count(OpClass.VECTORIZED) > 0
    assert value["summary"]["looped"] == 0
    assert value["summary"]["invariant"] >= 1
    ops = {(record["op"], record["kind"]) for record in value["ops"]}
    assert {("Log", "vectorized"), ("RealDiv", "vectorized")} <= ops
    (log,) = [record for record in value["ops"] if record["op"] == "Log"]
    assert log["where"][0].startswith("test_parity.py:")
    assert value["tolerance"] == {"float32": tolerance_of(tf.float32, None), "int32": 0.0}
