"""How attacks are judged. The attacks themselves need a server: ``make attack``."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from loadtests.attack.__main__ import carry_out
from loadtests.attack.case import Case, Harm, cases
from loadtests.attack.target import Secrets, Target, archive_of
from loadtests.attack.watch import Seen, Stretch, slowdowns


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    server: Any = SimpleNamespace(url="http://127.0.0.1:1", returncode=None, pid=1, log=str)
    known = Secrets(in_file="f", file=tmp_path, in_environment="e", untouched=tmp_path, token="t")
    monkeypatch.setattr(httpx, "request", lambda *_, **__: httpx.Response(200, text="alive"))
    return Target(server, "127.0.0.1:2", known, registrar="r", caller="c", neighbour="n", store=tmp_path)


def met(target: Target, run: Any) -> tuple[str, str]:
    outcome = carry_out(Case("area", "name", run), target)
    return outcome.how, outcome.harm


def test_an_attack_that_was_met_says_how(target: Target) -> None:
    assert met(target, lambda _: "refused") == ("refused", "")


@pytest.mark.parametrize("error", [Harm("it got the file"), AssertionError("answered 500"), ValueError("unreadable")])
def test_an_attack_that_did_harm_or_can_t_be_judged_is_a_fault(target: Target, error: Exception) -> None:
    def run(_: Target) -> str:
        raise error

    how, harm = met(target, run)
    assert how == ""
    assert str(error) in harm


def test_a_server_that_is_gone_after_an_attack_is_harmed(target: Target) -> None:
    target.server.returncode = -9  # type: ignore[misc]
    assert met(target, lambda _: "refused")[1] == "the server does not live"


def test_a_refusal_is_the_caller_s_fault_and_no_error_of_the_server_s(target: Target) -> None:
    assert target.refused(httpx.Response(403, json={"error": "no right"})) == "403: no right"
    for status in (200, 500):
        with pytest.raises(AssertionError, match=f"answered {status}"):
            target.refused(httpx.Response(status, text="x"))


def test_every_area_has_attacks_and_no_two_are_called_alike() -> None:
    areas = Counter(case.area for case in cases())
    assert sum(areas.values()) >= 60
    assert min(areas.values()) >= 4, areas
    assert max(Counter((case.area, case.name) for case in cases()).values()) == 1


def test_a_bystander_s_p99_is_that_of_the_spans_asked_for() -> None:
    seen = Seen(tuple((float(at), 1.0 if at < 100 else 2.0) for at in range(200)), ())
    assert seen.p99_ms([(0.0, 100.0)]) == 1e3
    assert seen.p99_ms([(0.0, 10.0), (100.0, 200.0)]) == 2e3
    assert math.isinf(seen.p99_ms([(300.0, 400.0)]))


def test_one_odd_moment_of_many_is_not_a_bystander_s_p99_but_a_slow_tail_is() -> None:
    def took(at: int) -> float:
        if 400 <= at < 500:
            return 9.0  # a moment in which the machine did something else
        return 2.0 if at % 50 == 0 else 1.0

    seen = Seen(tuple((float(at), took(at)) for at in range(2_000)), ())
    assert seen.p99_ms([(0.0, 2_000.0)]) == 2e3


@pytest.mark.parametrize("harm", [1.0, 1.5])
def test_what_drifts_on_the_machine_is_no_slowdown_and_what_attacks_cost_is(harm: float) -> None:
    """A machine that gets three times as slow while it is measured; attacks take every second 300 answers."""
    machine = [1.0 + 2.0 * at / 6_000 for at in range(6_000)]
    seen = Seen(tuple((float(at), slow * (harm if at // 300 % 2 else 1.0)) for at, slow in enumerate(machine)), ())
    spans = [(float(at), float(at + 300)) for at in range(0, 6_000, 300)]
    stretches = [Stretch((spans[n],), spans[n - 1], spans[n + 1]) for n in range(1, len(spans) - 1, 2)]
    found = sorted(slowdowns(seen, stretches))
    assert found[len(found) // 2] == pytest.approx(harm, rel=0.02)


def test_an_archive_holds_its_files() -> None:
    assert archive_of({"a": b"1"})[:2] == b"\x1f\x8b"
