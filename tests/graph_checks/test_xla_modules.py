"""What a module of XLA calls is read as XLA's own reader reads it, and what can't be read is refused."""

from __future__ import annotations

import pytest

from server.graph_checks.xla_modules import leaves_by
from tests.graph_checks.jax_modules import LAPACK, OPEN_BATCH, PLAIN


def test_modules_of_jax_pass_also_those_that_check_their_batch() -> None:
    assert leaves_by(PLAIN) is None
    assert leaves_by(OPEN_BATCH) is None
    assert b"custom_call_v1" in OPEN_BATCH


def test_what_jax_hands_to_lapack_is_named() -> None:
    assert leaves_by(LAPACK) == "custom_call of 'lapack_spotrf_ffi'"


def test_a_check_that_is_another_call_is_found() -> None:
    assert leaves_by(OPEN_BATCH.replace(b"shape_assertion", b"system_assertio")) == "custom_call of 'system_assertio'"


@pytest.mark.parametrize(
    ("was", "becomes"),
    [(b"compare_v1", b"outfeed_v1"), (b"private", b"send_v1"), (b"custom_call_v1", b"custom_call_v2")],
)
def test_other_ways_out_are_found(was: bytes, becomes: bytes) -> None:
    assert was in OPEN_BATCH
    assert leaves_by(OPEN_BATCH.replace(was, becomes)) is not None


@pytest.mark.parametrize(
    "content", [b"", b"ML\xefR", b"module {}", OPEN_BATCH[:200], b"ML\xefR\x03x\0" + OPEN_BATCH[6:]]
)
def test_what_is_no_whole_module_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"module|version"):
        leaves_by(content)


def test_no_damage_goes_unseen_or_is_another_error() -> None:
    for position in range(len(LAPACK)):
        for bit in (1, 0x80):
            damaged = LAPACK[:position] + bytes([LAPACK[position] ^ bit]) + LAPACK[position + 1 :]
            try:
                leaves_by(damaged)
            except ValueError:
                continue
