"""The closed loop by locust's users, in a worker of its own: the server counts the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from loadtests.runs.crew import Crew
from loadtests.runs.figures import figures
from loadtests.runs.load import Load
from tests.loadtests.runs.test_generator import doubling
from tests.loadtests.test_driver import answer, doubled

pytestmark = pytest.mark.slow


def test_locust_counts_and_judges_as_the_driver_does(server: Any) -> None:
    sent: Counter[str] = Counter()

    def script(path: str, body: bytes) -> list[bytes]:
        kind = "refused" if sent.total() % 10 == 9 else "wrong" if b"[4.25]" in body else "right"
        sent[kind] += 1
        if kind == "refused":
            return [answer(b'{"error":"full"}', status="503 Service Unavailable")]
        return [answer(doubled(body) if kind == "right" else b'{"predictions":[0]}')]

    server.script = script
    crew = Crew(server.url, [doubling()])
    seen = crew.run(Load(callers=3, duration_s=1.0, warmup_s=0.0), engine="locust")
    found = figures(seen)
    counted = {failure.kind: failure.count for failure in found.failures}
    assert found.n_right == sent["right"] > 10
    assert counted == {"status 503": sent["refused"], "wrong answer": sent["wrong"]}
    assert next(each.example for each in found.failures if each.kind == "status 503") == '{"error":"full"}'
    assert 0 < seen.busy <= 1
    assert found.p50_ms > 0
