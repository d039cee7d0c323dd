"""A whole server that is killed (SIGKILL) before a step of what it was asked for, and started again, many times.

``python -m tests.e2e.killed_rounds --rounds 200 --seed 1``. The operations take turns, and each round ends in one: it
is asked for until the server has died within it. What was answered with success is there after the start; what was not
is there whole or not at all; the version that answers gives the right numbers, no number is given out twice, and every
file is what was built.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from rich.progress import track

from server.store import StoreView
from tests.catalog.artifacts import make_artifact
from tests.e2e.server_process import ServerProcess

__all__ = ["OPERATIONS", "Rounds"]

#: What a server may die in. ``collect``: old versions that go by themselves, after a registration.
OPERATIONS = ("register", "activate", "delete", "collect", "label")
FACTORS = (1, 2, 3)
#: More than an operation has: who gets through one tells how many it has.
MOST_STEPS = {"register": 45, "activate": 8, "delete": 14, "collect": 8, "label": 8}
#: The step that an operation begins with, where another one comes before it.
FIRST_STEP = {"collect": r"move \d+ to m-\d+"}
#: Those after which old versions go.
COLLECTS = frozenset({"register", "activate", "collect"})
#: Seconds after which old versions have gone, or stay because they were being unloaded.
CLEARED_S = 5.0
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

    def versions_for(self, operation: str) -> list[int]:
        """Return the versions that an operation can be asked of; of ``collect``, those that will go by it."""
        match operation:
            case "activate":
                return sorted(self.kept - {self.active})
            case "label":
                return sorted(self.kept - {self.stable})
            case "delete":
                return sorted(self.kept - {self.active, self.stable})
            case _:
                # The active one is still being unloaded when the next one serves, and goes later.
                return sorted({*sorted(self.versions)[: len(self.versions) + 1 - KEEP]} - {self.active, self.stable})


#: Given what is seen, all that may be.
MayBe = Callable[[Known], list[Known]]


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
        self._n_steps = dict(MOST_STEPS)
        #: Operations, and the steps before which they ended.
        self.killed_before: Counter[tuple[str, str]] = Counter()

    @property
    def killed_in(self) -> Counter[str]:
        """How often the server died in each operation."""
        sums: Counter[str] = Counter()
        for (operation, _), n in self.killed_before.items():
            sums[operation] += n
        return sums

    def run(self, n_rounds: int) -> Iterator[str]:
        """Start a server, look at what is there, and kill it within an operation; yield each round's in a few words."""
        may_be = _nothing
        turn: list[str] = []
        for number in range(n_rounds + 1):
            with self._server() as server:
                seen = self._known = self._settled(server, may_be, f"round {number}")
                view = StoreView(self._store)
                assert view.damage == ()
                assert [check.faults for check in view.checks(read=True) if check.faults] == []
                if number == n_rounds:
                    return
                turn = turn or self._rng.sample(OPERATIONS, len(OPERATIONS))
                operation, step, may_be = self._kill_within(server, turn.pop())
                self.killed_before[operation, step] += 1
                yield f"round {number}: {seen}; killed in {operation!r} before {step!r}"

    def _server(self) -> ServerProcess:
        launcher = (sys.executable, "tests/e2e/mortal_server.py", str(self._control), str(self._artifacts))
        options = ("--jail", "off", "--import-package", "m", "--keep-versions", str(KEEP))
        return ServerProcess(self._store, *options, command=launcher)

    def _kill_within(self, server: ServerProcess, operation: str) -> tuple[str, str, MayBe]:
        """Ask for an operation until the server has died in it. Return the step, and what may be there afterwards."""
        while True:
            self._prepare(server, operation)
            before = self._known
            ask, after = self._choose(operation)
            self._arm(self._rng.randrange(self._n_steps[operation]), FIRST_STEP.get(operation, ""))
            was_answered = False
            try:
                with httpx.Client(base_url=server.url, timeout=120) as client:
                    answer = ask(client)
                assert answer.is_success, answer.text
                was_answered = True
            except httpx.TransportError:
                server.process.wait(30)
            may_be = _either(after, () if was_answered else (before,))
            if was_answered:
                # What goes on by itself, as clearing up, may still come to the step.
                try:
                    server.process.wait(2.0)
                except subprocess.TimeoutExpired:
                    self._n_steps[operation] = max(1, len(self._disarm()))
                    self._known = self._settled(server, may_be, operation, is_cleared=operation in COLLECTS)
                    continue
            assert server.process.returncode == -signal.SIGKILL, server.log
            return operation, self._disarm()[-1], may_be

    def _prepare(self, server: ServerProcess, operation: str) -> None:
        """See to it that there is something that can be done, without killing anything."""
        while operation != "register" and not self._known.versions_for(operation):
            ask, after = self._choose("register")
            with httpx.Client(base_url=server.url, timeout=120) as client:
                answer = ask(client)
            assert answer.is_success, answer.text
            self._known = self._settled(server, after, f"before {operation!r}", is_cleared=True)

    def _choose(self, operation: str) -> tuple[Callable[[httpx.Client], httpx.Response], MayBe]:
        """Return how an operation is asked for, and what may be seen once it is done."""
        known, rng = self._known, self._rng
        last = self._last
        if operation in {"register", "collect"}:
            factor = rng.choice(FACTORS)
            body = {"import_path": f"m:times{factor}"}

            def registered(seen: Known) -> list[Known]:
                new = seen.versions.keys() - known.versions.keys()
                assert all(number > last for number in new), "a number was given out twice"
                return [replace(known, versions={**known.versions, number: factor}, active=number) for number in new]

            return lambda client: client.put(f"{MODEL}?wait=true", json=body), registered
        version = rng.choice(known.versions_for(operation))
        if operation == "activate":
            done = replace(known, active=version)
            path = f"{MODEL}/versions/{version}:activate"
            return lambda client: client.post(path, json={}), lambda _: [done]
        if operation == "label":
            done = replace(known, stable=version)
            path = f"{MODEL}/labels/stable"
            return lambda client: client.put(path, json={"version": version}), lambda _: [done]
        rest = {number: factor for number, factor in known.versions.items() if number != version}
        path = f"{MODEL}/versions/{version}"
        return lambda client: client.delete(path), lambda _: [replace(known, versions=rest)]

    def _settled(self, server: ServerProcess, may_be: MayBe, which: str, *, is_cleared: bool = False) -> Known:
        """Return what there is once it is what may be: a version that was built and not switched to yet is soon.

        ``is_cleared``: and once old versions have gone, if they do.
        """
        began_s = time.monotonic()
        while True:
            seen, took_s = self._look(server), time.monotonic() - began_s
            is_allowed = any(known.allows(seen) for known in may_be(seen))
            if is_allowed and (not is_cleared or seen.versions.keys() == seen.kept or took_s > CLEARED_S):
                self._last = max([self._last, *seen.versions])
                return seen
            assert is_allowed or took_s < 60.0, f"{which}: {seen} is none of {may_be(seen)}\n{server.log}"
            time.sleep(0.2)

    def _look(self, server: ServerProcess) -> Known:
        """Wait until nothing is on its way, and return what there is; what answers is asked, not only listed."""
        deadline_s = time.monotonic() + 120.0
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while True:
                listed: list[dict[str, Any]] = client.get("/v1/models").json()["models"]
                is_ready = client.get("/v2/health/ready").status_code == 200
                is_at_rest = is_ready and all(each["state"] in {"AVAILABLE", "UNLOADED"} for each in listed)
                factors = self._factors(client, listed) if is_at_rest else None
                if factors is not None:
                    break
                assert time.monotonic() < deadline_s, listed
                time.sleep(0.1)
            labels = client.get(f"{MODEL}/labels").json() if listed else {}
            active = next((each["version"] for each in listed if each["active"]), None)
            if active is not None:
                answer = client.post(f"{MODEL}:predict", json={"instances": [3.0]}).json()
                assert answer["predictions"] == [3.0 * factors[active]]
        return Known(factors, active, labels.get("labels", labels).get("stable"))

    @staticmethod
    def _factors(client: httpx.Client, listed: list[dict[str, Any]]) -> dict[int, int] | None:
        """Return what each version multiplies by; None if one has gone since it was listed."""
        factors = {}
        for each in listed:
            certificate = client.get(f"{MODEL}/versions/{each['version']}/certificate")
            if certificate.status_code == 404:
                return None
            factors[each["version"]] = int(certificate.json()["factor"])
        return factors

    def _arm(self, n_steps: int, first: str) -> None:
        new = self._control.with_name("new")
        new.write_text(f"{n_steps} {first}".strip())
        new.replace(self._control)

    def _disarm(self) -> list[str]:
        """Return the steps that there were."""
        self._control.unlink()
        steps = self._control.with_name(self._control.name + ".steps")
        told = steps.read_text().splitlines() if steps.exists() else []
        steps.unlink(missing_ok=True)
        return told


def _either(after: MayBe, others: tuple[Known, ...]) -> MayBe:
    return lambda seen: [*after(seen), *others]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rowwise-kills-") as scratch:
        rounds = Rounds(Path(scratch), options.seed)
        for told in track(rounds.run(options.rounds), "killing servers", total=options.rounds):
            if not sys.stdout.isatty():
                print(told, flush=True)
        for (operation, step), n in sorted(rounds.killed_before.items()):
            print(f"{n:5}  {operation}: before {step!r}")
        print(
            f"{rounds.killed_in.total()} kills, each followed by the old state or the new one: {dict(rounds.killed_in)}"
        )
