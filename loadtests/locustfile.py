"""Scenarios for locust against any running server: single examples, several models mixed, every answer checked.

    locust -f loadtests/locustfile.py --host http://127.0.0.1:8000

Models are weighted by what a busy service might see. Those that the server doesn't hold are left out; with
``--models digits,lstm`` only these are asked. The server has to know them by the names in ``loadtests.workload``.

One locust process sends some hundreds to a few thousand requests a second and is then itself the limit: it is for
mixed traffic, long runs and watching. Throughput is measured with ``make load``, whose driver sends tens of
thousands.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from locust import FastHttpUser, between, constant, events, tag, task
from locust.exception import RescheduleTask, StopUser

# locust runs this file by its path, so the packages beside it are not found by themselves.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from loadtests import workload

__all__ = ["EagerUser", "PatientUser"]

#: Requests to each model, in proportion.
WEIGHTS = {"digits": 8, "digits_convnet": 3, "embedding": 4, "lstm": 2, "implied_volatility": 3}
#: Trained where the server runs, perhaps on other hardware, so that its weights may differ in their last digits.
TRAINED = {"digits": 0.05, "digits_convnet": 0.05}
_MANY = 16

_log = logging.getLogger(__name__)


class _Requests:
    """The requests of each model that is asked, ready before the first user starts."""

    def __init__(self) -> None:
        #: The server that they were made for; None before that.
        self.host: str | None = None
        self.workloads: dict[str, workload.Workload] = {}
        self._turns: dict[str, Iterator[int]] = {}

    def prepare(self, host: str, wanted: list[str]) -> None:
        served = [model for model in wanted if _is_served(host, model)]
        if not served:
            raise RuntimeError(f"{host} serves none of {', '.join(wanted)}; register one, or name others with --models")
        with tempfile.TemporaryDirectory() as directory:
            for model in served:
                _log.info("Making the requests for %s, and their answers", model)
                made = workload.load(workload.make(model, Path(directory)))
                self.workloads[model] = workload.Workload(
                    model=made.model,
                    bodies=made.bodies,
                    answers=made.answers,
                    tolerance=TRAINED.get(model, made.tolerance),
                )
                self._turns[model] = itertools.cycle(range(len(made.bodies)))
        self.host = host

    def next_of(self, model: str) -> tuple[workload.Workload, int]:
        return self.workloads[model], next(self._turns[model])


_requests = _Requests()


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_arguments(parser: Any) -> None:
    parser.add_argument("--models", default=",".join(WEIGHTS), help="Models to ask, separated by commas")


@events.init.add_listener  # type: ignore[untyped-decorator]
def _prepare_early(environment: Any, **_: Any) -> None:
    """Before the run: its time limit counts from there, and the first requests take seconds to make."""
    if environment.host:
        _prepare(environment)


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _prepare(environment: Any, **_: Any) -> None:
    host = environment.host.rstrip("/")
    if _requests.host == host:
        return
    try:
        _requests.prepare(host, environment.parsed_options.models.split(","))
    except (RuntimeError, ValueError) as error:
        _log.error("%s", error)
        sys.exit(2)


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _refuse_silence(environment: Any, **_: Any) -> None:
    """A run without a single request has shown nothing, whatever locust makes of it."""
    if environment.stats.total.num_requests == 0:
        _log.error("not one request was answered")
        environment.process_exit_code = 2


class _Caller(FastHttpUser):
    abstract = True

    def ask(self, model: str) -> None:
        """Send one example and check its answer."""
        chosen, index = _requests.next_of(model)
        with self.client.post(
            chosen.path,
            data=chosen.bodies[index].decode(),
            headers={"Content-Type": "application/json"},
            name=f"{model}: one example",
            catch_response=True,
        ) as answer:
            _judge(answer, _predictions(answer.content), [chosen.answers[index]], chosen.tolerance)

    def ask_many(self, model: str) -> None:
        """Send several examples in one request: they are rows like all others."""
        picked = [_requests.next_of(model) for _ in range(_MANY)]
        chosen = picked[0][0]
        instances = [orjson.loads(chosen.bodies[index])["instances"][0] for _, index in picked]
        with self.client.post(
            chosen.path,
            data=orjson.dumps({"instances": instances}).decode(),
            headers={"Content-Type": "application/json"},
            name=f"{model}: {_MANY} examples",
            catch_response=True,
        ) as answer:
            expected = [chosen.answers[index] for _, index in picked]
            _judge(answer, _predictions(answer.content), expected, chosen.tolerance)

    def some_model(self) -> str:
        """Return a model, by weight."""
        models = list(_requests.workloads)
        if not models:
            raise StopUser
        return random.choices(models, [WEIGHTS.get(model, 1) for model in models])[0]


class PatientUser(_Caller):
    """Somebody who thinks between two requests."""

    weight = 3
    wait_time = between(0.01, 0.1)

    @tag("mixed")
    @task(20)
    def one_example_of_some_model(self) -> None:
        self.ask(self.some_model())

    @tag("many")
    @task(1)
    def several_examples_of_some_model(self) -> None:
        self.ask_many(self.some_model())

    @tag("wrong")
    @task(1)
    def an_example_of_the_wrong_shape(self) -> None:
        """A caller's mistake has to be answered as one, whatever else is going on."""
        chosen, _ = _requests.next_of(self.some_model())
        body = '{"instances": [{"no such input": [1.0]}]}'
        name = f"{chosen.model}: wrong on purpose"
        with self.client.post(chosen.path, data=body, name=name, catch_response=True) as answer:
            if answer.status_code == 400:
                answer.success()
            else:
                answer.failure(f"expected status 400, got {answer.status_code}: {answer.text[:200]}")


class EagerUser(_Caller):
    """A program that sends the next request when it has the answer to the last."""

    weight = 1
    wait_time = constant(0)

    @tag("mixed")
    @task
    def one_example_of_some_model(self) -> None:
        self.ask(self.some_model())


def _judge(answer: Any, got: Any, expected: list[Any], tolerance: float) -> None:
    if answer.status_code in (429, 503):
        # Refused in time, as an overloaded server should; it says when to come back.
        answer.failure(f"status {answer.status_code}: overloaded")
        time.sleep(min(1.0, float(answer.headers.get("Retry-After", 1))))
        raise RescheduleTask
    if answer.status_code != 200:
        answer.failure(f"status {answer.status_code}: {(answer.text or '')[:200]}")
    elif workload.equal(got, expected, tolerance=tolerance):
        answer.success()
    else:
        answer.failure("wrong answer")


def _predictions(body: bytes | None) -> Any:
    try:
        document = orjson.loads(body or b"")
    except orjson.JSONDecodeError:
        return None
    return document.get("predictions") if isinstance(document, Mapping) else None


def _is_served(host: str, model: str) -> bool:
    try:
        with urllib.request.urlopen(f"{host}/v1/models/{model}", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False
    except urllib.error.URLError as error:
        raise RuntimeError(f"no server at {host}: {error.reason}") from error
