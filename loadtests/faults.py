"""The faults of ``make chaos``: each is done to a running server, and says what it may cost whom."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from loadtests.contenders import Server
from loadtests.ledger import Callers, End, Ledger
from loadtests.processes import children, is_builder, until
from loadtests.small_models import BUILD, Question, question

__all__ = ["SCENARIOS", "Chaos", "Scenario", "register"]

#: Callers of each model.
CALLERS = 4
_READY_S = 240.0


def registration(function: str) -> dict[str, Any]:
    """Return the body that registers one of the small models."""
    return {"import_path": f"loadtests.small_models:{function}", **BUILD[function]}


def register(url: str, name: str, function: str, *, wait: bool = True) -> dict[str, Any]:
    """Register one of the small models. Returns the answer's body; with ``wait`` the version serves then."""
    question = "?wait=true" if wait else ""
    answer = httpx.put(f"{url}/v1/models/{name}{question}", json=registration(function), timeout=_READY_S)
    if answer.status_code not in (200, 201, 202):
        raise RuntimeError(f"registering {name} was answered {answer.status_code}: {answer.text[:500]}")
    fields: dict[str, Any] = answer.json()
    return fields


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A fault and what is allowed to follow from it.

    ``run`` does it while the account is kept, and returns what it saw; AssertionError and TimeoutError are failures.
    ``may`` are the ends that requests may have besides being right, or refused for their own bad example.
    ``has_own_server``: one that may be gone at the end. ``disk_mib``: its store is on a file system of that size.
    """

    name: str
    run: Callable[[Chaos], str]
    may: frozenset[End] = frozenset()
    has_own_server: bool = False
    disk_mib: int | None = None


class Chaos:
    """One scenario under way: a server, an account, and how long each phase lasts."""

    def __init__(self, server: Server, ledger: Ledger, *, store: Path, seconds: float) -> None:
        self.server = server
        self.url = server.url
        self.ledger = ledger
        self.store = store
        self.seconds = seconds

    def callers(
        self, *, n: int = 2 * CALLERS, leaving: float = 0.0, slow: float = 0.0, pause_s: float = 0.0
    ) -> Callers:
        """Return callers of both models, half of the requests each."""
        return Callers(self.url, self.ledger, _either, n=n, leaving=leaving, slow=slow, pause_s=pause_s)

    def until_answered(self, n: int) -> None:
        """Wait until so many more requests were answered right."""
        before = self.ledger.ends[End.RIGHT]
        until(lambda: self.ledger.ends[End.RIGHT] >= before + n, f"{n} more right answers")

    def child(self, name: str) -> int | None:
        """Return the process id of the supervisor's child of that name."""
        return next((pid for pid, line in children(self.server.pid).items() if line[-1:] == [name]), None)

    def builder(self) -> int | None:
        """Return the process id of a builder, below any of the server's processes."""
        for process in (self.server.pid, *children(self.server.pid)):
            for pid, line in children(process).items():
                if is_builder(line):
                    return pid
        return None

    def until_ready(self) -> float:
        """Wait until the server says that it is ready, and return the seconds that took."""
        began_s = time.monotonic()
        until(self._is_ready, "ready again", timeout_s=_READY_S)
        return time.monotonic() - began_s

    def _is_ready(self) -> bool:
        try:
            return httpx.get(self.url + "/v2/health/ready", timeout=10).status_code == 200
        except httpx.HTTPError:
            return False


def _either(number: int) -> Question:
    if number % 2:
        return question(number, "shares", "shares")
    return question(number, "vector", "tripled", "negated")


def _nothing(chaos: Chaos) -> str:
    with chaos.callers():
        time.sleep(chaos.seconds)
    return "the load alone"


def _kill_engine(chaos: Chaos) -> str:
    engine = chaos.child("engine")
    assert engine is not None, "there is no engine process"
    with chaos.callers():
        chaos.until_answered(50)
        os.kill(engine, signal.SIGKILL)
        until(lambda: chaos.ledger.ends[End.LATER], "a 503")
        took_s = chaos.until_ready()
        chaos.until_answered(100)
    return f"ready again after {took_s:.1f} s"


def _kill_worker(chaos: Chaos) -> str:
    worker = chaos.child("worker 1")
    assert worker is not None, "there is no worker process"
    with chaos.callers():
        chaos.until_answered(50)
        os.kill(worker, signal.SIGKILL)
        until(lambda: chaos.child("worker 1") not in (None, worker), "a new worker")
        chaos.until_answered(100)
    n_broken = chaos.ledger.ends[End.BROKEN]
    # A caller has one request under way: more can't be lost with a process.
    assert n_broken <= 2 * CALLERS, f"{n_broken} connections broke, there were {2 * CALLERS}"
    return f"{n_broken} of {2 * CALLERS} connections were its"


def _kill_builder(chaos: Chaos) -> str:
    with chaos.callers():
        chaos.until_answered(20)
        version = register(chaos.url, "victim", "tripled", wait=False)["version"]
        until(chaos.builder, "a builder")
        time.sleep(1.0)
        builder = chaos.builder()
        assert builder is not None, "the builder was done already"
        os.kill(builder, signal.SIGKILL)
        url = f"{chaos.url}/v1/models/victim"
        until(lambda: "END" in httpx.get(url, timeout=30).text, "the version's end")
        chaos.until_answered(50)
    status = httpx.get(url, timeout=30).json()["model_version_status"][0]
    assert status["version"] == str(version)
    assert status["status"]["error_message"], "nothing says why the version is not there"
    httpx.delete(url, timeout=60)
    return f"the version says: {status['status']['error_message'][:60]}"


def _leave(chaos: Chaos) -> str:
    with chaos.callers(leaving=0.5):
        time.sleep(chaos.seconds)
        chaos.until_answered(20)
    return "half of the callers hang up within 10 ms"


def _slow(chaos: Chaos) -> str:
    with chaos.callers(), chaos.callers(slow=1.0):
        time.sleep(chaos.seconds)
        chaos.until_answered(20)
    return "half of the callers send 4 bytes at a time"


def _switch(chaos: Chaos) -> str:
    versions = sorted(int(entry["version"]) for entry in _versions(chaos.url))[:2]
    assert len(versions) == 2, "the model has one version"
    # What a closed loop can do, then callers that pause for the share of the time that 80 % of it leaves.
    with chaos.callers():
        began, n_before = time.monotonic(), chaos.ledger.ends[End.RIGHT]
        time.sleep(2.0)
        rate = (chaos.ledger.ends[End.RIGHT] - n_before) / (time.monotonic() - began)
    n_switches = 100
    with chaos.callers(pause_s=0.25 * 2 * CALLERS / max(1.0, rate)):
        paced_s = time.monotonic()
        time.sleep(max(2.0, chaos.seconds / 2))
        first_s = time.monotonic()
        for turn in range(n_switches):
            answer = httpx.post(f"{chaos.url}/v1/models/vector/versions/{versions[turn % 2]}:activate", timeout=120)
            assert answer.status_code == 200, answer.text
        last_s = time.monotonic()
        time.sleep(max(2.0, chaos.seconds / 2))
    paced = [(began_s, took_s) for began_s, took_s in chaos.ledger.latencies if began_s >= paced_s]
    quiet = sorted(took_s for began_s, took_s in paced if not first_s <= began_s <= last_s)
    during = sorted(took_s for began_s, took_s in paced if first_s <= began_s <= last_s)
    p99 = during[int(0.99 * len(during))] / quiet[int(0.99 * len(quiet))]
    return f"{n_switches} in {last_s - first_s:.0f} s at 80 % of {rate:.0f}/s; p99 {p99:.2f}x"


def _versions(url: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = httpx.get(f"{url}/v1/models/vector", timeout=30).json()["model_version_status"]
    return listed


def _register_again(chaos: Chaos) -> str:
    with chaos.callers(pause_s=0.01):
        names = [register(chaos.url, "again", function)["version"] for function in ("tripled", "negated")]
        assert names == [1, 2], names
        assert httpx.delete(f"{chaos.url}/v1/models/again", timeout=60).status_code == 204
        gone = httpx.post(f"{chaos.url}/v1/models/again:predict", json={"instances": [[1.0, 2.0, 3.0]]}, timeout=30)
        assert gone.status_code == 404, f"a deleted model is answered {gone.status_code}"
    return "registered twice and deleted beside the load"


def _disk_full(chaos: Chaos) -> str:
    ballast = chaos.store / "ballast"
    with chaos.callers():
        chaos.until_answered(20)
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4_096):
                pass
        refused = httpx.put(f"{chaos.url}/v1/models/late", json=registration("tripled"), timeout=60)
        assert refused.status_code == 503, f"registering was answered {refused.status_code}: {refused.text[:300]}"
        assert "late" not in httpx.get(f"{chaos.url}/v1/models", timeout=30).text, "half of it is there"
        chaos.until_answered(50)
        ballast.unlink()
        register(chaos.url, "late", "tripled")
        chaos.until_answered(50)
    return "registering is 503 meanwhile, and done once there is room"


def _sigterm(chaos: Chaos) -> str:
    with chaos.callers():
        chaos.until_answered(50)
        told_s = time.monotonic()
        os.kill(chaos.server.pid, signal.SIGTERM)
        until(lambda: chaos.server.returncode is not None, "the server's end", timeout_s=60.0)
        took_s = time.monotonic() - told_s
    early = [at_s for at_s in chaos.ledger.broken_at if at_s < told_s]
    assert not early, f"{len(early)} connections broke before it was told to end"
    assert chaos.server.returncode == 0, f"it ended with {chaos.server.returncode}"
    return f"ended {took_s:.1f} s after it was told"


SCENARIOS = (
    Scenario(name="nothing", run=_nothing),
    Scenario(name="kill -9 of an HTTP worker", run=_kill_worker, may=frozenset({End.BROKEN})),
    Scenario(name="kill -9 of the engine", run=_kill_engine, may=frozenset({End.LATER})),
    Scenario(name="kill -9 of the builder", run=_kill_builder),
    Scenario(name="callers leave", run=_leave, may=frozenset({End.LEFT})),
    Scenario(name="slow callers", run=_slow),
    Scenario(name="100 version switches", run=_switch),
    Scenario(name="registered again", run=_register_again),
    Scenario(name="disk full", run=_disk_full, has_own_server=True, disk_mib=64),
    Scenario(name="SIGTERM", run=_sigterm, may=frozenset({End.LATER, End.BROKEN}), has_own_server=True),
)
