"""Who drives, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests.runs.choice import LOCUST_REQUESTS_PER_S, choose, refusal_of_locust
from loadtests.runs.load import Load

CLOSED, OPEN = Load(callers=4), Load(rate=10.0)


def chosen(
    load: Load, *, probed_per_s: float, asked: Any = "auto", scheme: str = "http", is_installed: bool = True
) -> Any:
    return choose(asked, load, scheme=scheme, is_installed=is_installed, probed_per_s=probed_per_s)


def test_locust_drives_what_it_keeps_up_with_and_the_driver_the_rest() -> None:
    slow, quick = (chosen(CLOSED, probed_per_s=factor * LOCUST_REQUESTS_PER_S) for factor in (0.9, 1.1))
    assert (slow.engine, quick.engine) == ("locust", "driver")
    assert "keeps up" in slow.reason
    assert "may itself be the limit" in quick.reason


@pytest.mark.parametrize(
    ("load", "options", "reason"),
    [
        (OPEN, {}, "open loop"),
        (CLOSED, {"scheme": "https"}, "certificates"),
        (CLOSED, {"is_installed": False}, "not installed"),
    ],
)
def test_what_locust_cannot_drive_is_the_drivers_and_says_why(load: Load, options: Any, reason: str) -> None:
    choice = chosen(load, probed_per_s=1.0, **options)
    assert choice.engine == "driver"
    assert reason in choice.reason


def test_who_is_asked_for_drives() -> None:
    assert chosen(CLOSED, probed_per_s=1e6, asked="locust").engine == "locust"
    assert chosen(CLOSED, probed_per_s=1.0, asked="driver").engine == "driver"
    assert refusal_of_locust(CLOSED, scheme="http", is_installed=True) is None
