"""docs/ops.md is true: what it says of each op is found out again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from scripts.op_page.calls import probe_calls
from scripts.op_page.classify import OpClass, classify, patterns
from scripts.op_page.families import FAMILIES, family_of
from scripts.op_page.page import entry_line, entry_of, known_classes, left_out, ops_in_question, raw_ops
from vectorizer.converters import converters

PAGE = (Path(__file__).parents[2] / "docs" / "ops.md").read_text()
KNOWN = known_classes(PAGE)
#: What a change here can change. Of the others only TensorFlow decides, whose version is pinned.
OURS = sorted(op for op, known in KNOWN.items() if known == OpClass.BY_US or op in converters())
N_PARTS = 8
STALE = "`make op-page` writes docs/ops.md anew; look at what it changes before you commit it"


def test_every_op_of_tensorflow_is_on_the_page_or_in_a_family_that_is_left_out() -> None:
    unknown = set(ops_in_question()) - KNOWN.keys()
    assert not unknown, f"TensorFlow has ops that the page does not know: {sorted(unknown)}; {STALE}"
    assert KNOWN.keys() <= set(ops_in_question()), STALE


def test_families_that_are_left_out_are_counted_rightly() -> None:
    assert left_out() in PAGE, STALE
    assert all(any(family_of(op) is family for op in raw_ops()) for family in FAMILIES)


def test_counts_of_the_classes_are_those_of_the_lists() -> None:
    for kind in OpClass:
        assert f"| {sum(known == kind for known in KNOWN.values())} |" in PAGE


def assert_converting_shows_what_the_page_says(ops: Iterable[str]) -> None:
    wrong = {}
    for op in ops:
        entry = entry_of(op)
        if entry.kind != KNOWN[op] or entry_line(entry) not in PAGE:
            wrong[op] = f"is {KNOWN[op]!r} on the page, and in truth {entry}"
    assert not wrong, f"{wrong}; {STALE}"


@pytest.mark.parametrize("part", range(N_PARTS))
def test_class_and_remark_of_every_op_that_we_convert_are_what_converting_it_shows(part: int) -> None:
    assert_converting_shows_what_the_page_says(OURS[part::N_PARTS])


@pytest.mark.long
@pytest.mark.parametrize("part", range(N_PARTS))
def test_class_and_remark_of_every_other_op_are_what_converting_it_shows(part: int) -> None:
    assert_converting_shows_what_the_page_says(sorted(KNOWN.keys() - set(OURS))[part::N_PARTS])


def test_converter_that_hides_a_loop_is_seen_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stock pfor has a converter for these; ours is taken away."""
    for op in ("Diag", "Conv2DBackpropFilter"):
        (_, usual), *_ = probe_calls(op)
        operands = dict(patterns(usual))[""]
        assert classify(usual, operands).kind == OpClass.BY_US
        found = classify(usual, operands, without=[op])
        assert found.kind == OpClass.LOOPED, op
