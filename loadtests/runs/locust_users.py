"""A closed loop by locust's users: as many as callers, each asking again when it has its answer.

locust is an extra, and importing it makes sockets and threads those of gevent: only the worker does. Users share the
questions, and times are taken around each request, as the fast driver takes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

# Importing it makes time.sleep and sockets gevent's, which has to come before anything that has sockets.
from locust import FastHttpUser, constant, task
from locust.env import Environment

from loadtests.runs.arrivals import turns
from loadtests.runs.generator import Plan, Progress
from loadtests.runs.observations import Observations, Observer

__all__ = ["drive"]

_LOOK_S = 0.1
_REPORT_S = 0.5
#: Users that are started a second: all of them at once.
_SPAWNED_PER_S = 10_000


def drive(plan: Plan, *, on_progress: Callable[[Progress], None], is_stopped: Callable[[], bool]) -> Observations:
    """Carry out a closed loop."""
    load, seen = plan.load, Observer([questions.model for questions in plan.questions])
    judges = [questions.judge() for questions in plan.questions]
    order = turns([questions.weight for questions in plan.questions], seed=load.seed)
    headers = [[dict((*each.headers, *question.headers)) for question in each.questions] for each in plan.questions]
    end_s = load.warmup_s + load.duration_s
    start_s = time.perf_counter()
    n_sent = 0
    under_way = 0
    upcoming = [0] * len(plan.questions)

    class Caller(FastHttpUser):
        host = f"http://{plan.host}"
        wait_time = constant(0)
        connection_timeout = load.timeout_s
        network_timeout = load.timeout_s
        max_retries = 0
        max_redirects = 0

        @task
        def ask(self) -> None:
            nonlocal n_sent, under_way
            sent_s = time.perf_counter() - start_s
            if sent_s >= end_s or n_sent >= load.max_requests or is_stopped():
                # The runner ends the users; until then they rest.
                time.sleep(_LOOK_S)
                return
            model = order[n_sent % len(order)]
            index = upcoming[model] % len(plan.questions[model].questions)
            upcoming[model] += 1
            n_sent += 1
            under_way += 1
            question = plan.questions[model].questions[index]
            with self.client.post(
                plan.questions[model].path,
                data=cast("str", question.body),  # bytes pass, and binary tensors are
                headers=headers[model][index],
                name=plan.questions[model].model,
                catch_response=True,
            ) as answer:
                done_s = time.perf_counter() - start_s
                under_way -= 1
                body = answer.content or b""
                if answer.status_code == 0:
                    outcome = seen.failure("no answer", str(answer.error))
                elif answer.status_code != 200:
                    outcome = seen.failure(f"status {answer.status_code}", body[:400].decode(errors="replace"))
                elif judges[model].accepts(index, body):
                    outcome = 0
                else:
                    outcome = seen.failure("wrong answer", f"question {index}: {body[:400].decode(errors='replace')}")
                answer.success() if outcome == 0 else answer.failure(outcome)
            seen.add(model, sent_s, sent_s, done_s, outcome)

    environment = Environment(user_classes=[Caller])
    runner = environment.create_local_runner()
    cpu_s = time.process_time()
    runner.start(load.callers or 1, spawn_rate=_SPAWNED_PER_S)
    n_reported = 0
    reported_s = 0.0
    while (now_s := time.perf_counter() - start_s) < end_s and n_sent < load.max_requests and not is_stopped():
        time.sleep(min(_LOOK_S, end_s - now_s))
        if now_s - reported_s >= _REPORT_S:
            p50_ms, p99_ms = seen.glance(n_reported)
            reported_s, n_reported = now_s, len(seen)
            on_progress(Progress(at_s=now_s, n_done=len(seen), n_failed=seen.n_failed, p50_ms=p50_ms, p99_ms=p99_ms))
    elapsed_s = time.perf_counter() - start_s
    busy = min(1.0, (time.process_time() - cpu_s) / elapsed_s)
    last_s = time.perf_counter() + load.timeout_s + 1.0
    while under_way and time.perf_counter() < last_s:
        time.sleep(0.02)
    runner.quit()
    return seen.finish(warmup_s=load.warmup_s, elapsed_s=elapsed_s, busy=busy, is_interrupted=is_stopped())
