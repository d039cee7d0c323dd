"""A whole server that is killed (SIGKILL) before a random step of what it was asked for, and started again, many times.

What it answered with success is there after the start; what it did not answer is there whole or not at all; the version
that answers gives the right numbers, no number is given out twice, and every file is what was built. The store alone is
killed before every single step in ``tests/store``; here are the catalog, the engine and HTTP besides.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_process import ServerProcess

from server.store import StoreView
from tests.catalog.artifacts import make_artifact

pytestmark = [pytest.mark.e2e, pytest.mark.long]

FACTORS = (1, 2, 3)
#: More than an operation has, so that some rounds end after it.
MOST_STEPS = {"register": 45, "activate": 8, "delete": 14, "label": 8}
KEEP = 2
MODEL = "/v1/models/m"


@dataclass(frozen=True)
class Known:
    """What is true of the model. ``versions``: the factor of each."""

    versions: dict[int, int] = field(default_factory=dict)
    active: int | None = None
    stable: int | None = None

    @property
    def kept(self) -> set[int]:
        """Versions that ``keep_versions`` leaves."""
        return {*sorted(self.versions)[-KEEP:], *({self.active, self.stable} - {None})}  # type: ignore[arg-type]

    def allows(self, seen: Known) -> bool:
        """Return whether it may look like that: old versions go by themselves, sooner or later."""
        return (
            (seen.active, seen.stable) == (self.active, self.stable)
            and self.kept <= seen.versions.keys() <= self.versions.keys()
            and all(self.versions[version] == factor for version, factor in seen.versions.items())
        )


def _nothing(_: Known) -> list[Known]:
    return [Known()]


class Rounds:
    """One store, and the servers that live and die over it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._control = directory / "steps-left"
        self._store = directory / "store"
        self._artifacts = directory / "artifacts"
        for factor in FACTORS:
            (self._artifacts / f"times{factor}").mkdir(parents=True)
            make_artifact(self._artifacts / f"times{factor}", factor)
        self._known = Known()
        #: The highest number that was seen.
        self._last = 0
        self.killed_before: Counter[str] = Counter()

    def run(self, n_rounds: int) -> None:
        """Start a server, look at what is there, ask for something, and kill it before a step of that or after it."""
        may_be = _nothing
        for number in range(n_rounds + 1):
            with self._server() as server:
                seen = self._known = self._settled(server, may_be, f"round {number}")
                print(f"round {number}: {seen}; killed before: {dict(self.killed_before)}", flush=True)
                self._last = max([self._last, *seen.versions])
                view = StoreView(self._store)
                assert view.damage == ()
                assert [check.faults for check in view.checks(read=True) if check.faults] == []
                may_be = self._ask_and_kill(server)

    def _server(self) -> ServerProcess:
        launcher = (sys.executable, "tests/e2e/mortal_server.py", str(self._control), str(self._artifacts))
        options = ("--jail", "off", "--import-package", "m", "--keep-versions", str(KEEP))
        return ServerProcess(self._store, *options, command=launcher)

    def _ask_and_kill(self, server: ServerProcess) -> Callable[[Known], list[Known]]:
        """Return what may be seen by who knows what is there afterwards."""
        before = self._known
        operation, ask, after = self._choose()
        self._arm(self._rng.randrange(MOST_STEPS[operation]))
        answered = False
        try:
            with httpx.Client(base_url=server.url, timeout=120) as client:
                answer = ask(client)
            assert answer.is_success, answer.text
            answered = True
        except httpx.TransportError:
            server.process.wait(30)
        if answered:
            # What goes on by itself, as clearing up, may be killed too.
            try:
                server.process.wait(1.0)
            except subprocess.TimeoutExpired:
                server.kill()
        self._disarm(operation)
        assert server.process.returncode == -signal.SIGKILL, server.log
        return lambda seen: [*after(seen), *([] if answered else [before])]

    def _choose(self) -> tuple[str, Callable[[httpx.Client], httpx.Response], Callable[[Known], list[Known]]]:
        """Return an operation, how it is asked for, and what may be seen once it is done."""
        known, rng = self._known, self._rng
        free = sorted(known.versions.keys() - {known.active, known.stable})
        choices = ["register", "register", *(["activate", "label"] if known.versions else []), *["delete"] * bool(free)]
        operation = rng.choice(choices)
        if operation == "register":
            factor = rng.choice(FACTORS)
            body = {"import_path": f"m:times{factor}"}

            def registered(seen: Known) -> list[Known]:
                new = seen.versions.keys() - known.versions.keys()
                assert all(number > self._last for number in new), "a number was given out twice"
                return [replace(known, versions={**known.versions, number: factor}, active=number) for number in new]

            return operation, lambda client: client.put(f"{MODEL}?wait=true", json=body), registered
        version = rng.choice(free if operation == "delete" else sorted(known.versions))
        if operation == "activate":
            done = replace(known, active=version)
            path = f"{MODEL}/versions/{version}:activate"
            return operation, lambda client: client.post(path, json={}), lambda _: [done]
        if operation == "label":
            done = replace(known, stable=version)
            path = f"{MODEL}/labels/stable"
            return operation, lambda client: client.put(path, json={"version": version}), lambda _: [done]
        rest = {number: factor for number, factor in known.versions.items() if number != version}
        path = f"{MODEL}/versions/{version}"
        return operation, lambda client: client.delete(path), lambda _: [replace(known, versions=rest)]

    def _settled(self, server: ServerProcess, may_be: Callable[[Known], list[Known]], which: str) -> Known:
        """Return what there is once it is what may be: a version that was built and not switched to yet is soon."""
        deadline_s = time.monotonic() + 60.0
        while True:
            seen = self._look(server)
            if any(known.allows(seen) for known in may_be(seen)):
                return seen
            assert time.monotonic() < deadline_s, f"{which}: {seen} is none of {may_be(seen)}\n{server.log}"
            time.sleep(0.2)

    def _look(self, server: ServerProcess) -> Known:
        """Wait until nothing is on its way, and return what there is; what answers is asked, not only listed."""
        deadline_s = time.monotonic() + 120.0
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while True:
                listed: list[dict[str, Any]] = client.get("/v1/models").json()["models"]
                is_ready = client.get("/v2/health/ready").status_code == 200
                if is_ready and all(each["state"] in {"AVAILABLE", "UNLOADED"} for each in listed):
                    break
                assert time.monotonic() < deadline_s, listed
                time.sleep(0.1)
            labels = client.get(f"{MODEL}/labels").json() if listed else {}
            factors = {}
            for each in listed:
                certificate = client.get(f"{MODEL}/versions/{each['version']}/certificate")
                factors[each["version"]] = int(certificate.json()["factor"])
            active = next((each["version"] for each in listed if each["active"]), None)
            if active is not None:
                answer = client.post(f"{MODEL}:predict", json={"instances": [3.0]}).json()
                assert answer["predictions"] == [3.0 * factors[active]]
        return Known(factors, active, labels.get("labels", labels).get("stable"))

    def _arm(self, n_steps: int) -> None:
        new = self._control.with_name("new")
        new.write_text(str(n_steps))
        new.replace(self._control)

    def _disarm(self, operation: str) -> None:
        steps = self._control.with_name(self._control.name + ".steps")
        if self._control.read_text() == "0" and steps.exists():
            last = steps.read_text().splitlines()[-1]
            self.killed_before[f"{operation}: {last}"] += 1
        self._control.unlink()
        steps.unlink(missing_ok=True)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_a_server_that_is_killed_at_any_step_has_done_what_was_asked_or_nothing(tmp_path: Path, seed: int) -> None:
    rounds = Rounds(tmp_path, seed)
    rounds.run(5)
    assert rounds.killed_before.total() >= 2, "it was killed within what it was asked for"
