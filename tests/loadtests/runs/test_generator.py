"""The driver against a server that counts: what it says is what the server saw."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import orjson
import pytest

from loadtests.runs.crew import Crew, GeneratorFailed
from loadtests.runs.figures import figures
from loadtests.runs.generator import Generator, Plan, Progress
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations
from loadtests.runs.questions import Question, Questions
from tests.loadtests.test_driver import answer, doubled

Server = Any  # ScriptedServer of conftest.py


def doubling(model: str = "double", *, weight: float = 1.0, is_checked: bool = True) -> Questions:
    """Questions whose right answer is twice the number."""
    bodies = [orjson.dumps({"instances": [index + 0.25]}) for index in range(20)]
    return Questions(
        model=model,
        path=f"/v1/models/{model}:predict",
        questions=tuple(Question(body=body, answer=doubled(body) if is_checked else None) for body in bodies),
        headers=(("Content-Type", "application/json"),),
        weight=weight,
    )


def run(server: Server, *questions: Questions, **options: Any) -> Observations:
    host, port = server.url.removeprefix("http://").split(":")
    load = Load(**{"warmup_s": 0.0, "duration_s": 0.4, "timeout_s": 5.0, "connections": 8, **options})
    plan = Plan(address=(host, int(port)), host=f"{host}:{port}", questions=questions or (doubling(),), load=load)
    return Generator(plan).run()


def test_a_closed_loop_counts_what_the_server_counted(server: Server) -> None:
    seen = run(server, callers=3)
    found = figures(seen)
    assert server.n_connections == 3
    assert found.n_requests == found.n_right == len(server.asked) > 30
    assert found.failures == ()
    assert found.requests_per_s == pytest.approx(found.n_requests / found.measured_s, rel=0.2)
    assert np.array_equal(seen.due_s, seen.sent_s)


def test_an_open_loop_sends_what_is_due_whatever_was_answered(server: Server) -> None:
    seen = run(server, rate=200.0, arrivals="constant", duration_s=0.5)
    assert len(server.asked) == len(seen.due_s) == 100
    assert sorted(seen.due_s) == pytest.approx([number / 200 for number in range(100)])
    assert (seen.sent_s >= seen.due_s).all()
    assert figures(seen).n_right == 100


def test_latency_is_what_the_server_takes(server: Server) -> None:
    def slow(path: str, body: bytes) -> list[bytes]:
        time.sleep(0.02)
        return [answer(doubled(body))]

    server.script = slow
    found = figures(run(server, callers=1, duration_s=0.6))
    assert 20 <= found.p50_ms <= found.p99_ms
    assert found.n_requests <= 30


def stalling(server: Server, *, at_s: float, for_s: float) -> None:
    """Let a server answer at once, but for one stretch of time in which it answers nobody."""
    began: list[float] = []

    def script(path: str, body: bytes) -> list[bytes]:
        now_s = time.monotonic()
        began[:] = began or [now_s]
        left_s = began[0] + at_s + for_s - now_s
        if at_s <= now_s - began[0] and left_s > 0:
            time.sleep(left_s)
        return [answer(doubled(body))]

    server.script = script


def test_an_open_loop_charges_a_stall_with_all_that_would_have_come(server: Server) -> None:
    stalling(server, at_s=0.5, for_s=1.0)
    seen = run(server, rate=100.0, arrivals="constant", duration_s=3.0, connections=4)
    found = figures(seen)
    # A third of the requests were due while nobody was answered; three quarters of them waited that long.
    waited = int(((seen.done_s - seen.due_s) > 0.25).sum())
    assert waited >= 60
    assert found.p99_ms > 900
    assert found.p90_ms > 500
    assert found.n_right == found.n_requests == len(server.asked) == 300
    assert seen.n_waited > 50


def test_a_closed_loop_sees_the_same_stall_as_a_few_slow_requests(server: Server) -> None:
    stalling(server, at_s=0.5, for_s=1.0)
    seen = run(server, callers=4, duration_s=3.0)
    assert int(((seen.done_s - seen.due_s) > 0.25).sum()) <= 30


def test_errors_are_counted_by_code_as_the_server_counted_them(server: Server) -> None:
    sent: Counter[str] = Counter()

    def script(path: str, body: bytes) -> list[bytes]:
        number = sent.total()
        kind = "429" if number % 5 == 0 else "500" if number % 7 == 0 else "200"
        sent[kind] += 1
        if kind == "200":
            return [answer(doubled(body))]
        status = {"429": "429 Too Many Requests", "500": "500 Internal Server Error"}[kind]
        return [answer(b'{"error":"number %d"}' % number, status=status)]

    server.script = script
    found = figures(run(server, callers=2))
    counted = {failure.kind: failure.count for failure in found.failures}
    assert counted == {"status 429": sent["429"], "status 500": sent["500"]}
    assert found.n_right == sent["200"]
    assert found.failures[0].example == '{"error":"number 0"}'


def test_wrong_answers_and_closed_connections_are_failures(server: Server) -> None:
    def script(path: str, body: bytes) -> list[bytes]:
        if b"[3.25]" in body:
            return [b""]
        return [answer(doubled(body) if b"[4.25]" not in body else b'{"predictions":[0]}')]

    server.script = script
    found = figures(run(server, callers=2))
    assert {failure.kind for failure in found.failures} == {"no answer", "wrong answer"}
    assert "question 4" in next(failure.example for failure in found.failures if failure.kind == "wrong answer")
    assert figures(run(server, doubling(is_checked=False), callers=2)).failures[0].kind == "no answer"


def test_answers_within_the_tolerance_are_right(server: Server) -> None:
    def script(path: str, body: bytes) -> list[bytes]:
        (value,) = orjson.loads(body)["instances"]
        return [answer(orjson.dumps({"predictions": [2 * value + 1e-6]}))]

    server.script = script
    assert figures(run(server, callers=2)).n_failed == 0


def test_what_is_not_answered_in_time_is_given_up_and_counts_with_that_time(server: Server) -> None:
    server.script = lambda path, body: [] if b"[5.25]" in body else [answer(doubled(body))]
    found = figures(run(server, callers=2, timeout_s=0.3, duration_s=0.8))
    assert [failure.kind for failure in found.failures] == ["no answer"]
    assert found.failures[0].example == "none within 0.3 s"
    assert found.max_ms >= 300
    assert found.n_right > 20, "the connection was replaced"


def test_a_server_that_answers_nobody_leaves_no_request_without_an_end(server: Server) -> None:
    server.script = lambda path, body: []
    seen = run(server, rate=100.0, arrivals="constant", connections=2, timeout_s=0.3, duration_s=0.3)
    found = figures(seen)
    assert found.n_requests == 30
    assert found.n_right == 0
    assert {failure.kind for failure in found.failures} == {"no answer", "never sent"}


def test_a_mix_reaches_each_model_by_its_weight(server: Server) -> None:
    seen = run(server, doubling("a", weight=3), doubling("b", weight=1), callers=4, duration_s=0.6)
    paths = Counter(path for path, _ in server.asked)
    assert paths["/v1/models/a:predict"] == int((seen.model == 0).sum())
    assert paths["/v1/models/b:predict"] / paths.total() == pytest.approx(0.25, abs=0.1)


def test_no_more_is_sent_than_allowed(server: Server) -> None:
    assert figures(run(server, callers=3, max_requests=17, duration_s=5.0)).n_requests == len(server.asked) == 17
    server.asked.clear()
    assert figures(run(server, rate=500.0, max_requests=17, duration_s=5.0)).n_requests == len(server.asked) == 17


def test_a_stopped_run_keeps_what_was_seen(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    plan = Plan(
        address=(host, int(port)), host=host, questions=(doubling(),), load=Load(callers=2, duration_s=60, warmup_s=0)
    )
    stopped = threading.Event()
    told: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        told.append(progress)
        stopped.set()

    seen = Generator(plan, on_progress=on_progress, is_stopped=stopped.is_set).run()
    assert seen.is_interrupted
    assert seen.elapsed_s < 30
    assert figures(seen).n_right == len(server.asked) > 0
    assert told[0].n_done > 0


def test_several_processes_share_a_load(server: Server) -> None:
    crew = Crew(server.url, [doubling()], n_processes=2)
    seen = crew.run(Load(rate=100.0, arrivals="constant", duration_s=1.0, warmup_s=0, connections=4))
    assert len(seen.due_s) == len(server.asked) == 100
    assert figures(seen).n_failed == 0
    assert not crew.was_interrupted


def test_a_server_that_is_not_there_is_a_sentence(server: Server) -> None:
    server.close()
    with pytest.raises(GeneratorFailed, match="refused"):
        Crew(server.url, [doubling()]).run(Load(callers=1, duration_s=0.1))
