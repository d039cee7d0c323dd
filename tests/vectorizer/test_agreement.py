"""Which buckets answer with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from vectorizer import AnswerBits
from vectorizer.parity import answer_bits

ONE = np.float32(1.0)
NEXT = np.nextafter(ONE, np.float32(2.0))


def noted(*entries: tuple[tuple[int, ...], int, float]) -> AnswerBits:
    bits = AnswerBits()
    for bucket, probe, value in entries:
        bits.note(bucket, probe, [np.float32(value)])
    return bits


def test_buckets_with_equal_answers_are_one_group_and_the_largest_comes_first() -> None:
    bits = noted(((1,), 0, ONE), ((2,), 0, NEXT), ((4,), 0, NEXT), ((8,), 0, ONE), ((16,), 0, ONE))
    assert bits.groups() == (((1,), (8,), (16,)), ((2,), (4,)))


def test_bucket_whose_answer_depends_on_the_slot_agrees_with_none() -> None:
    bits = noted(((1,), 0, ONE), ((2,), 0, ONE), ((2,), 0, NEXT), ((4,), 0, ONE))
    assert [bits.is_steady((rows,)) for rows in (1, 2, 4)] == [True, False, True]
    assert bits.groups() == (((1,), (4,)), ((2,),))


def test_buckets_of_two_lengths_are_compared_on_the_examples_that_both_hold() -> None:
    bits = noted(((2, 4), 0, ONE), ((2, 8), 0, ONE), ((2, 8), 1, NEXT), ((2, 16), 0, NEXT), ((2, 16), 1, NEXT))
    assert bits.groups() == (((2, 4), (2, 8)), ((2, 16),))


def test_buckets_without_a_common_example_are_not_said_to_agree() -> None:
    assert noted(((1,), 0, ONE), ((2,), 1, ONE)).groups() == (((1,),), ((2,),))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.array([np.nan], np.float32), -np.array([np.nan], np.float32), True),
        (np.array([0.0], np.float32), np.array([-0.0], np.float32), False),
        (np.array([b"a", b"b"], object), np.array([b"ab", b""], object), False),
        (np.array([b"a\0"], object), np.array([b"a"], object), False),
        (np.array([1 + 1j], np.complex64), np.array([1 + 1j], np.complex64), True),
    ],
)
def test_bits_of_an_answer(one: np.ndarray, other: np.ndarray, *, same: bool) -> None:
    assert (answer_bits(one) == answer_bits(other)) == same


def test_steady_groups_hold_buckets_of_one_length_and_none_that_the_slot_changes() -> None:
    bits = noted(
        ((1, 4), 0, ONE),
        ((2, 4), 0, NEXT),
        ((4, 4), 0, NEXT),
        ((8, 4), 0, ONE),
        ((8, 4), 0, NEXT),
        ((2, 8), 0, ONE),
        ((2, 8), 1, ONE),
        ((4, 8), 0, ONE),
        ((4, 8), 1, ONE),
    )
    assert bits.steady_groups() == (((2, 4), (4, 4)), ((2, 8), (4, 8)), ((1, 4),))
