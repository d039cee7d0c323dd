"""What the demo concludes from the answers that it gets."""

from __future__ import annotations

import shlex
from pathlib import Path

import orjson
import pytest
import tensorflow as tf
import typer

from loadtests.demo import certificate_lines, next_steps, reading
from rowwise.cli.app import app
from tests.command_lines import parse
from vectorizer import vectorize


def row(digit: int) -> list[float]:
    return [0.91 if index == digit else 0.01 for index in range(10)]


def body(digit: int) -> bytes:
    return orjson.dumps({"predictions": [row(digit)]})


def test_equal_digits_give_equal_accuracy_whether_right_or_wrong() -> None:
    read = reading([body(1), body(2), body(3)], [row(1), row(2), row(3)], [1, 2, 9])
    assert (read.n, read.served_right, read.alone_right) == (3, 2, 2)
    assert read.is_equal


def test_digits_that_differ_are_seen_even_where_accuracy_is_the_same() -> None:
    read = reading([body(1), body(5)], [row(4), row(2)], [1, 2])
    assert read.served_right == read.alone_right == 1
    assert read.different == 2
    assert not read.is_equal


@pytest.mark.parametrize(
    "broken", [b"", b"{", b'{"error":"no"}', b'{"predictions":[]}', b'{"predictions":[[1,2]]}', b'{"predictions":null}']
)
def test_an_answer_that_is_none_is_not_equal(broken: bytes) -> None:
    read = reading([body(1), broken], [row(1), row(2)], [1, 2])
    assert (read.unanswered, read.served_right) == (1, 1)
    assert not read.is_equal


def test_a_certificate_is_said_in_three_lines() -> None:
    batched = vectorize(lambda x: x * 2, inputs={"x": tf.TensorSpec([3])}, buckets=(1, 4))
    lines = certificate_lines(batched.certificate.to_dict())
    assert "0 looped" in lines[0]
    assert "batch sizes 1, 4: " in lines[1]
    assert lines[2] == "largest difference 0.0e+00; equal to the bit at 2 of 2 sizes"


def test_what_it_ends_with_can_be_typed_by_whoever_has_installed_the_package() -> None:
    steps = next_steps()
    commands = [shlex.split(step) for step in steps if not step.startswith(" ")]
    assert [command[:2] for command in commands] == [["rowwise", name] for name in ("serve", "loadtest", "register")]
    for command in commands:
        parse(typer.main.get_command(app), command[1:])
    assert Path(steps[-1].split()[-1]).is_file()
