"""One load test from the first question to the report: what ``rowwise loadtest`` does, without its command line."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from loadtests.compare import machine
from loadtests.contenders import Server, cores_in_use, looped_command
from loadtests.runs.asking import Asked, Asker, Form
from loadtests.runs.choice import BUSY, Choice, choose, locust_is_installed
from loadtests.runs.crew import Crew
from loadtests.runs.document import document, models_json, ramp_json
from loadtests.runs.figures import figures
from loadtests.runs.inputs import generated, recorded
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations
from loadtests.runs.questions import Questions
from loadtests.runs.ramp import Ramp, climb
from loadtests.runs.search import Search
from loadtests.runs.verdict import Target, Targets, remarks
from loadtests.runs.versus import Contender, Versus, face
from loadtests.runs.views import View
from rowwise import __version__

__all__ = ["Mixed", "Order", "is_this_machine", "perform"]

#: Seconds of the probe that says which engine can drive, and where a ramp begins.
_PROBE_S = 1.0
#: Beyond this many requests a second no ramp looks.
HIGHEST_RATE = 1_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """One model of the mix, and where its examples come from; ``inputs`` None: made from its signature."""

    model: str
    weight: float = 1.0
    inputs: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Order:
    """What somebody wants measured. ``baseline``: import paths by model; ``compare``: another server's URL."""

    url: str
    models: tuple[Mixed, ...]
    load: Load
    targets: Targets = field(default_factory=Targets)
    is_ramp: bool = False
    first_rate: float | None = None
    precision: float = 0.05
    engine: Literal["auto", "driver", "locust"] = "auto"
    n_processes: int = 1
    form: Form = "json"
    is_checked: bool = False
    tolerance: float = 1e-4
    n_generated: int = 200
    max_length: int = 16
    seed: int = 0
    compare: str | None = None
    baseline: tuple[tuple[str, str], ...] = ()
    repeats: int = 3
    token: str | None = None
    compare_token: str | None = None
    ca: str | None = None

    def settings(self) -> dict[str, Any]:
        """Return what a reader needs to repeat it; no secrets."""
        return {
            "models": {mixed.model: mixed.weight for mixed in self.models},
            "load": "ramp of open loops" if self.is_ramp else str(self.load),
            "warmup_s": self.load.warmup_s,
            "duration_s": self.load.duration_s,
            "timeout_s": self.load.timeout_s,
            "max_requests": self.load.max_requests,
            "connections": self.load.connections if self.load.is_open or self.is_ramp else self.load.callers,
            "form": self.form,
            "check": self.is_checked,
            "tolerance": self.tolerance,
            "seed": self.seed,
            "p99_ms": self.targets.p99_ms,
            "max_errors": self.targets.max_errors,
            "engine": self.engine,
            "processes": self.n_processes,
            "compare": self.compare,
            "baseline": dict(self.baseline) or None,
            "repeats": self.repeats if self.compare or self.baseline else None,
            "token": "given" if self.token else "none",
        }


@dataclass(kw_only=True)
class _Found:
    choice: Choice
    seen: Observations | None = None
    load: Load | None = None
    ramp: Ramp | None = None
    versus: Versus | None = None
    was_interrupted: bool = False


def is_this_machine(url: str) -> bool:
    """Return whether a URL names the loopback interface."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def perform(order: Order, view: View) -> dict[str, Any]:
    """Carry out a load test and return its report.

    Errors: RowwiseClientError and InputsUnreadable, before anything is loaded; GeneratorFailed; RuntimeError if a
    baseline doesn't start.
    """
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    view.stage("looking at this machine")
    others_cores = cores_in_use(during_s=0.5)
    view.stage("asking the server about its models")
    questions = _questions(order, order.url, view)
    with ExitStack() as stack:
        crew = Crew(order.url, questions, ca=order.ca, n_processes=order.n_processes, on_progress=view.show)
        other = _other(order, questions, view, stack)
        found = _measured(order, crew, other, view)
    return _report(order, questions, found, started_at=started_at, others_cores=others_cores)


def _questions(order: Order, url: str, view: View) -> tuple[Questions, ...]:
    asker = Asker(url, token=order.token, ca=order.ca, timeout_s=order.load.timeout_s)
    made = []
    try:
        for mixed in order.models:
            signature = asker.signature(mixed.model)
            if mixed.inputs is not None:
                examples, source = recorded(mixed.inputs, signature), str(mixed.inputs)
            else:
                examples = generated(signature, n=order.n_generated, seed=order.seed, max_length=order.max_length)
                source = f"made from the signature, seed {order.seed}"
            asked = Asked(model=mixed.model, weight=mixed.weight, examples=examples, source=source)
            questions = asker.questions(asked, signature, form=order.form, tolerance=order.tolerance)
            if order.is_checked:
                view.stage(f"{mixed.model}: asking each of {len(questions.questions)} questions alone")
                made.append(asker.checked(questions))
            else:
                made.append(asker.tried(questions))
    finally:
        asker.close()
    return tuple(made)


def _other(order: Order, questions: Sequence[Questions], view: View, stack: ExitStack) -> Contender | None:
    """Return who is compared with, started if need be and asked once."""
    if order.baseline:
        view.stage("starting the looped baseline")
        served = [f"{model}={path}" for model, path in order.baseline]
        server = Server("the looped baseline", lambda port: looped_command(port, models=served))
        stack.enter_context(server)
        name, url, token = "looped baseline", server.url, None
    elif order.compare is not None:
        # The same server twice tells what two runs differ by.
        is_again = order.compare == order.url
        name = f"{order.compare} (again)" if is_again else order.compare
        # One server's token is not the other's to know.
        url, token = order.compare, order.token if is_again else order.compare_token
    else:
        return None
    questions = [each.by(token) for each in questions]
    asker = Asker(url, token=token, ca=order.ca, timeout_s=order.load.timeout_s)
    try:
        for each in questions:
            asker.tried(each)
    finally:
        asker.close()
    return Contender(
        name=name,
        url=url,
        crew=Crew(url, questions, ca=order.ca, n_processes=order.n_processes, on_progress=view.show),
    )


def _measured(order: Order, crew: Crew, other: Contender | None, view: View) -> _Found:
    load, length_s = order.load, order.load.warmup_s + order.load.duration_s
    if order.is_ramp:
        choice = Choice(engine="driver", reason="a ramp is made of open loops, which are the driver's")
        first_rate = order.first_rate or _probe(crew, load, 1, view)
        search = Search(first_rate=first_rate, highest_rate=HIGHEST_RATE, precision=order.precision)
        ramp = climb(crew, load, order.targets, search, on_step=lambda what: view.stage(what, length_s=length_s))
        return _Found(choice=choice, seen=ramp.seen, load=ramp.load, ramp=ramp, was_interrupted=crew.was_interrupted)
    choice = _choice(order, crew, view)
    if other is not None:
        first = Contender(name=order.url, url=order.url, crew=crew)
        versus = face(
            (first, other),
            load,
            repeats=order.repeats,
            engine=choice.engine,
            on_step=lambda what: view.stage(what, length_s=length_s),
        )
        interrupted = crew.was_interrupted or other.crew.was_interrupted
        return _Found(choice=choice, seen=versus.seen, load=load, versus=versus, was_interrupted=interrupted)
    view.stage(f"{choice.engine}: {load}", length_s=length_s)
    seen = crew.run(load, engine=choice.engine)
    if choice.engine == "locust" and order.engine == "auto" and seen.busy > BUSY and not crew.was_interrupted:
        reason = f"locust was at work for {seen.busy:.0%} of its core, so this was measured again"
        choice = Choice(engine="driver", reason=reason)
        view.stage(f"driver: {load}", length_s=length_s)
        seen = crew.run(load)
    return _Found(choice=choice, seen=seen, load=load, was_interrupted=crew.was_interrupted)


def _choice(order: Order, crew: Crew, view: View) -> Choice:
    scheme, load = urlsplit(order.url).scheme, order.load
    is_open_question = order.engine == "auto" and not load.is_open and scheme == "http" and locust_is_installed()
    probed_per_s = _probe(crew, load, load.callers or 1, view) if is_open_question else 0.0
    return choose(order.engine, load, scheme=scheme, is_installed=locust_is_installed(), probed_per_s=probed_per_s)


def _probe(crew: Crew, load: Load, callers: int, view: View) -> float:
    """Return what a closed loop gets in a moment, requests a second."""
    view.stage(f"a probe with {callers} callers", length_s=_PROBE_S)
    short = replace(load, rate=None, callers=callers, warmup_s=0.2, duration_s=_PROBE_S, max_requests=100_000)
    seen = crew.run(short)
    if crew.was_interrupted:
        raise KeyboardInterrupt
    return figures(seen).requests_per_s


def _report(
    order: Order, questions: Sequence[Questions], found: _Found, *, started_at: str, others_cores: float
) -> dict[str, Any]:
    seen, load = found.seen, found.load
    judged: list[Target] = []
    said: list[str] = []
    if seen is not None and load is not None:
        numbers = figures(seen)
        is_checked = all(each.is_checked for each in questions)
        said = list(remarks(load, seen, numbers, is_checked=is_checked, others=others_cores))
        judged = order.targets.judge(numbers)
    if found.ramp is not None:
        rate = found.ramp.capacity.rate
        judged = [Target(name="capacity, requests/s", wanted=1, got=rate or 0.0, is_met=rate is not None)]
    if any(mixed.inputs is None for mixed in order.models):
        said.append(
            "Inputs were made from the signature: the model may take other paths, and other time, on real ones."
        )
    if is_this_machine(order.url):
        said.append("Server and generator share this machine, and take processor time from each other.")
    return document(
        tool=f"rowwise {__version__}",
        started_at=started_at,
        url=order.url,
        is_this_machine=is_this_machine(order.url),
        settings=order.settings(),
        machine=machine(),
        others_cores=others_cores,
        models=models_json(questions),
        choice=found.choice,
        n_processes=1 if found.choice.engine == "locust" else order.n_processes,
        seen=seen,
        load=load,
        ramp=ramp_json(found.ramp, order.targets) if found.ramp is not None else None,
        versus=found.versus,
        judged=judged,
        said=said,
        is_interrupted=found.was_interrupted,
    )
