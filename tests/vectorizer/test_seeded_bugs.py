"""Wrong converters, each wrong in one way only: every one is caught before anything is served, and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import ConversionError, Length, LoopedOpError, OpClass, ParityError, VectorizerError, vectorize
from vectorizer._pfor import stacked, wrap

#: ``(pfor_input) -> rows`` for the op that is replaced, all rows at once.
Rows = Callable[[Any], tf.Tensor]
LONGEST = 6


def softsign(pfor_input: Any) -> tf.Tensor:
    return tf.nn.softsign(pfor_input.stacked_input(0))


def rows_swapped(pfor_input: Any) -> tf.Tensor:
    return tf.reverse(softsign(pfor_input), [0])


def row_0_for_all(pfor_input: Any) -> tf.Tensor:
    y = softsign(pfor_input)
    return tf.zeros_like(y) + y[:1]


def nan_dropped(pfor_input: Any) -> tf.Tensor:
    y = softsign(pfor_input)
    return tf.where(tf.math.is_nan(y), tf.zeros_like(y), y)


def nan_spreads_to_neighbours(pfor_input: Any) -> tf.Tensor:
    y = softsign(pfor_input)
    return y + 0.0 * tf.reduce_sum(tf.where(tf.math.is_inf(y), tf.zeros_like(y), y), 0, keepdims=True)


def negative_taken_as_positive(pfor_input: Any) -> tf.Tensor:
    return tf.abs(softsign(pfor_input))


def wrong_above_4_rows(pfor_input: Any) -> tf.Tensor:
    y = softsign(pfor_input)
    return y * 1.01 if y.shape[0] > 4 else y


def wrong_in_last_slot(pfor_input: Any) -> tf.Tensor:
    y = softsign(pfor_input)
    return tf.concat([y[:-1], y[-1:] * 1.01], 0)


def huge_clipped(pfor_input: Any) -> tf.Tensor:
    x = pfor_input.stacked_input(0)
    return tf.nn.softsign(tf.where((tf.abs(x) > 1e15) & tf.math.is_finite(x), tf.zeros_like(x), x))


def infinity_wrong(pfor_input: Any) -> tf.Tensor:
    x = pfor_input.stacked_input(0)
    return tf.where(tf.math.is_inf(x), tf.zeros_like(x), tf.nn.softsign(x))


def last_of_the_longest_wrong(pfor_input: Any) -> tf.Tensor:
    y = softsign(pfor_input)
    return tf.concat([y[:, : LONGEST - 1], y[:, LONGEST - 1 :] * 1.01], 1)


def loop_in_the_open(pfor_input: Any) -> tf.Tensor:
    return tf.map_fn(tf.nn.softsign, pfor_input.stacked_input(0))


@tf.function
def _looping(rows: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(tf.nn.softsign, rows)


def loop_in_a_function(pfor_input: Any) -> tf.Tensor:
    return _looping(pfor_input.stacked_input(0))


def loop_in_a_branch(pfor_input: Any) -> tf.Tensor:
    rows = pfor_input.stacked_input(0)
    return tf.cond(tf.reduce_any(rows > 0), lambda: tf.map_fn(tf.nn.softsign, rows), lambda: tf.nn.softsign(rows))


def added(pfor_input: Any) -> tf.Tensor:
    return stacked(pfor_input.input(0), pfor_input) + stacked(pfor_input.input(1), pfor_input)


def squeezed_at_1_row(pfor_input: Any) -> tf.Tensor:
    return tf.squeeze(added(pfor_input))


def halved(pfor_input: Any) -> tf.Tensor:
    return pfor_input.stacked_input(0) * pfor_input.unstacked_input(1)


def minus_zero_lost(pfor_input: Any) -> tf.Tensor:
    y = halved(pfor_input)
    return tf.where(y == 0.0, tf.zeros_like(y), y)


def gathered(pfor_input: Any) -> tf.Tensor:
    return tf.gather(pfor_input.unstacked_input(0), pfor_input.stacked_input(1))


def next_one_gathered(pfor_input: Any) -> tf.Tensor:
    return tf.gather(pfor_input.unstacked_input(0), tf.minimum(pfor_input.stacked_input(1) + 1, 7))


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """A function, and the op of it whose converter is replaced by ``right`` or by a wrong one."""

    op: str
    function: Callable[..., Any]
    inputs: Mapping[str, tf.TensorSpec]
    right: Rows
    options: dict[str, Any] = field(default_factory=dict)

    def vectorize(self, rows: Rows) -> Any:
        def convert(pfor_input: Any) -> Any:
            return wrap(rows(pfor_input), stacked=True)

        return vectorize(
            self.function,
            inputs=self.inputs,
            converters={self.op: convert},
            **{"buckets": (1, 4), **self.options},
        )


SOFTSIGN = Replaced(
    op="Softsign", function=lambda x: {"y": tf.nn.softsign(x) * 2.0}, inputs={"x": spec(3)}, right=softsign
)
SEQUENCE = Replaced(
    op="Softsign",
    function=lambda x: {"y": tf.nn.softsign(x) * 2.0},
    inputs={"x": spec(None)},
    right=softsign,
    options={"buckets": (2,), "lengths": {"x": Length(max=LONGEST, buckets=(LONGEST,))}},
)
SUM = Replaced(op="AddV2", function=lambda x, z: {"y": x + z}, inputs={"x": spec(3), "z": spec(3)}, right=added)
INVERSE = Replaced(op="Mul", function=lambda x: {"y": 1.0 / (x * 0.5)}, inputs={"x": spec(3)}, right=halved)
LOOK_UP = Replaced(
    op="GatherV2",
    function=lambda i: {"y": tf.gather(tf.range(8.0) ** 2.0, i)},
    inputs={"i": spec(dtype=tf.int32)},
    right=gathered,
    options={"buckets": (4,)},
)

WRONG_ANSWERS = [
    (SOFTSIGN, rows_swapped, "bucket 4"),  # one row can't be swapped
    (SOFTSIGN, row_0_for_all, "bucket 4"),
    (SOFTSIGN, nan_dropped, "bucket 1 .*nan"),
    (SOFTSIGN, nan_spreads_to_neighbours, "bucket 4"),
    (SOFTSIGN, negative_taken_as_positive, "bucket 1"),
    (replace(SOFTSIGN, options={"buckets": (1, 4, 8)}), wrong_above_4_rows, "bucket 8"),
    (SOFTSIGN, wrong_in_last_slot, "bucket 1"),
    (SOFTSIGN, huge_clipped, "bucket 1 .*huge"),
    (SOFTSIGN, infinity_wrong, "bucket 1 .*inf"),
    (SEQUENCE, last_of_the_longest_wrong, "bucket 2x6"),
    (INVERSE, minus_zero_lost, r"bucket 1 .*-0\..*expected \[-inf.*got \[inf"),
    (LOOK_UP, next_one_gathered, "bucket 4"),
]
LOOPS = [loop_in_the_open, loop_in_a_function, loop_in_a_branch]


@pytest.mark.parametrize(("replaced", "wrong", "says"), WRONG_ANSWERS, ids=lambda value: getattr(value, "__name__", ""))
def test_wrong_answer_is_refused_with_output_and_example(replaced: Replaced, wrong: Rows, says: str) -> None:
    (name,) = list(replaced.inputs)[:1]
    with pytest.raises(ParityError, match=rf"(?s){says}") as caught:
        replaced.vectorize(wrong)
    message = str(caught.value)
    assert "answers otherwise than the function itself. Output 'y'" in message
    assert f"of the example {{'{name}': " in message
    assert ": expected " in message


@pytest.mark.parametrize("wrong", LOOPS)
def test_loop_over_the_rows_is_refused_by_the_ops_name_wherever_it_hides(wrong: Rows) -> None:
    with pytest.raises(LoopedOpError, match=r"op Softsign \(test_seeded_bugs.py:\d+\) would run once") as caught:
        SOFTSIGN.vectorize(wrong)
    (record,) = caught.value.records
    assert (record.op, record.kind, record.count) == ("Softsign", OpClass.REFUSED, 1)
    assert record.reason == "its converter is a loop over the rows"
    assert f"instead: {record.fix}" in str(caught.value)


def test_bug_in_the_last_slot_only_is_caught_where_slot_0_is_right() -> None:
    with pytest.raises(ParityError, match="bucket 4"):
        vectorize(
            SOFTSIGN.function,
            inputs=SOFTSIGN.inputs,
            buckets=(4,),
            converters={"Softsign": lambda given: wrap(wrong_in_last_slot(given), stacked=True)},
        )


@pytest.mark.parametrize("replaced", [SOFTSIGN, SEQUENCE, SUM, INVERSE, LOOK_UP], ids=lambda each: each.op)
def test_right_converter_passes_and_is_recorded_as_the_callers(replaced: Replaced) -> None:
    certificate = replaced.vectorize(replaced.right).certificate
    record = next(record for record in certificate.ops if record.op == replaced.op)
    assert (record.kind, record.converter) == (OpClass.VECTORIZED, "caller")


def test_batch_of_one_row_that_loses_its_dimension_is_refused_by_the_ops_name() -> None:
    with pytest.raises(ConversionError, match=r"op AddV2 \(test_seeded_bugs.py:\d+\) could not .* bucket 1"):
        SUM.vectorize(squeezed_at_1_row)


def test_raising_converter_is_refused_by_the_ops_name() -> None:
    def fails(_given: Any) -> tf.Tensor:
        raise ValueError("no such thing")

    with pytest.raises(VectorizerError, match=r"op Softsign .*no such thing"):
        SOFTSIGN.vectorize(fails)
