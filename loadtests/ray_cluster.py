"""A Ray cluster of this machine in processes of its own, and what is served on it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import httpx

from loadtests.ports import free_port
from loadtests.processes import children, cpu_s, descendants, stop_tree, until
from server.replica import ray_environment

__all__ = ["RayCluster", "ray_application"]

_ROOT = Path(__file__).resolve().parent.parent
_START_S = 240.0
_STOP_S = 60.0
#: Starting is tried again: Ray's own patience with its processes is 15 s, which a busy machine exceeds.
_TRIES = 3
#: Ray takes processes for dead that are late by seconds, as all are on a machine with more to do than cores.
_PATIENCE = {
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S": "120",
}


class RayCluster:
    """Runs while entered. ``haproxy``: HAProxy in front of replicas, in place of Ray Serve's own proxy.

    Errors: RuntimeError with what Ray printed, if it does not start.
    """

    def __init__(self, directory: Path, *, n_cpus: int, haproxy: bool) -> None:
        self._log = directory / "ray.log"
        self._n_cpus = n_cpus
        self._held = ExitStack()
        ports = _different_ports(10)
        self.address = f"127.0.0.1:{ports[0]}"
        self._ports = ports
        self.environment: Mapping[str, str] = {
            **os.environ,
            **ray_environment(haproxy=haproxy),
            "PYTHONPATH": str(_ROOT),
            "RAY_ADDRESS": self.address,
            # One machine, loopback, and gone in minutes.
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports[5]),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(ports[6]),
            "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports[7]),
            "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(ports[8]),
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
            # An interpreter for each core, ahead of need, is what a small machine has no time for.
            "RAY_prestart_worker_first_driver": "0",
            **_PATIENCE,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for left in reversed(range(_TRIES)):
            try:
                self._start()
                break
            except RuntimeError:
                if not left:
                    raise
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._process)

    def replicas(self, application: str) -> dict[int, bool]:
        """Return the process of each replica of an application that there is, and whether it has started."""
        assert self._process is not None, "it is entered"
        return {
            child: ".initialize" not in line[0]
            for pid in [self._process.pid, *descendants(self._process.pid)]
            for child, line in children(pid).items()
            if line and line[0].startswith(f"ray::ServeReplica:{application}:")
        }

    def replica_cpu_s(self, application: str) -> float:
        """Return the processor time that an application's replicas have used."""
        return sum(cpu_s(pid) for pid in self.replicas(application))

    def _start(self) -> None:
        names = ("port", "dashboard-agent-grpc-port", "metrics-export-port", "dashboard-agent-listen-port")
        ports = [
            f"--{name}={port}" for name, port in zip((*names, "runtime-env-agent-port"), self._ports, strict=False)
        ]
        command = [
            str(Path(sys.executable).with_name("ray")),
            *("start", "--head", "--block", "--include-dashboard=false", f"--num-cpus={self._n_cpus}"),
            *("--node-ip-address=127.0.0.1", "--disable-usage-stats", *ports),
            f"--ray-client-server-port={self._ports[9]}",
            # Any that the kernel gives. Ray's own range is 10002 to 19999, and it refuses a port of ours within it.
            *("--min-worker-port=0", "--max-worker-port=0"),
        ]
        with self._log.open("wb") as log:
            environment = {name: value for name, value in self.environment.items() if name != "RAY_ADDRESS"}
            self._process = subprocess.Popen(
                command, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        _await_text(self._process, self._log, "Ray runtime started")


@contextmanager
def ray_application(
    cluster: RayCluster, directory: Path, name: str, command: Sequence[str], *, ready: str
) -> Iterator[str]:
    """Run a program that serves on the cluster and prints "answers on URL" once it does; give the URL.

    ``ready`` is a path that then answers 200.
    """
    path = directory / f"{name}.log"
    for left in reversed(range(_TRIES)):
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=_ROOT,
                env=dict(cluster.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            said = _await_text(process, path, "answers on ")
            break
        except RuntimeError:
            if not left:
                raise
    try:
        url = said.partition("answers on ")[2].split()[0]
        until(lambda: _is_ready(url + ready), f"{name} at {url}", timeout_s=_START_S)
        yield url
    finally:
        _end(process)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=30).status_code == 200
    except httpx.HTTPError:
        return False


def _await_text(process: subprocess.Popen[bytes], path: Path, text: str) -> str:
    deadline_s = time.monotonic() + _START_S
    while text not in (said := path.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline_s:
            _end(process)
            raise RuntimeError(f"{path.name}: {said[-3_000:]}")
        time.sleep(0.1)
    return said


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        stop_tree(process, within_s=_STOP_S)


def _different_ports(n: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < n:
        ports.add(free_port())
    return list(ports)
