"""Servers as processes: started where they should run, ready or reported, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from loadtests.contenders import Cores, Server, cores_in_use, looped_command, pinned, responder_command, rowwise_command

#: Ready from its third answer on; says which cores it has.
SLOW_STARTER = """
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.send_response(200 if Handler.asked >= 3 else 503)
        self.end_headers()
        self.wfile.write(json.dumps(sorted(os.sched_getaffinity(0))).encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def python(code: str, port: int) -> list[str]:
    return [sys.executable, "-c", code, str(port)]


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_server_is_ready_inside_the_block_and_gone_after_it() -> None:
    waits: list[float] = []
    server = Server("slow", lambda port: python(SLOW_STARTER, port), on_wait=lambda: waits.append(time.monotonic()))
    with server:
        assert server._process is not None
        pid = server._process.pid
        with urllib.request.urlopen(server.url) as answer:
            assert answer.status == 200
        assert server.cpu_s() >= 0
        assert is_running(pid)
    assert len(waits) >= 2
    assert not is_running(pid)


def test_a_server_runs_on_its_core_and_we_on_ours() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    with (
        Server("slow", lambda port: python(SLOW_STARTER, port), core=core) as server,
        urllib.request.urlopen(server.url) as answer,
    ):
        assert answer.read() == f"[{core}]".encode()
        assert os.sched_getaffinity(0) == before


def test_a_server_that_exits_is_reported_with_its_last_words() -> None:
    code = "import sys; sys.exit('the store is locked by process 7')"
    with (
        pytest.raises(RuntimeError, match=r"broken exited with status 1:\nthe store is locked by process 7"),
        Server("broken", lambda port: python(code, port)),
    ):
        pass


def test_a_server_that_never_gets_ready_is_stopped_and_reported() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    for limit_s in (1, 4, 16, 64):  # on a busy machine the first limits may pass before it says anything
        server = Server("sleepy", lambda port: python(code, port), timeout_s=limit_s)
        with pytest.raises(RuntimeError, match=f"sleepy was not ready within {limit_s} s:\n") as caught, server:
            pass
        *_, said = str(caught.value).split()
        if said.isdigit():
            break
    assert not is_running(int(said))


def test_the_block_restores_the_cores_it_was_given_even_after_an_error() -> None:
    before = os.sched_getaffinity(0)
    inside = []

    def fail_on(core: int | None) -> None:
        with pinned(core):
            inside.append(os.sched_getaffinity(0))
            raise KeyError

    for core in (max(before), None):
        with pytest.raises(KeyError):
            fail_on(core)
        assert os.sched_getaffinity(0) == before
    assert inside == [{max(before)}, before]


def test_server_and_driver_get_a_core_each_where_there_are_two() -> None:
    usable = sorted(os.sched_getaffinity(0))
    cores = Cores.here()
    assert (cores.server, cores.driver) == ((usable[0], usable[1]) if len(usable) > 1 else (None, None))
    with pinned(usable[0]):
        assert Cores.here() == Cores(None, None)


def test_a_busy_process_is_seen_in_the_cores_in_use() -> None:
    code = "print('on', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as spinning:
        assert spinning.stdout is not None
        spinning.stdout.readline()
        used = cores_in_use(during_s=1.0)
        spinning.kill()
    assert 0.4 < used <= (os.cpu_count() or 1) * 1.1


def test_commands_name_what_is_served() -> None:
    full = rowwise_command(81, store=Path("s"), models=["digits", "lstm"])
    assert full[1:] == [
        *["-m", "rowwise", "serve", "--port", "81", "--grpc-port", "0", "--store", "s"],
        *["--model", "digits=models.digits:predict", "--model", "lstm=models.lstm:predict"],
    ]
    assert rowwise_command(81, store=Path("s"), batch_limit=1)[-2:] == ["--batch-limit", "1"]
    assert looped_command(82, models=["lstm"])[1:] == ["-m", "loadtests.baseline", "lstm", "--port", "82"]


def test_the_responder_answers_every_request_of_every_connection_alike() -> None:
    with Server("responder", lambda port: [*responder_command(port), "--body", '{"a":1}']) as server:
        for _ in range(3):
            request = urllib.request.Request(f"{server.url}/v1/models/x:predict", data=b"{}")
            with urllib.request.urlopen(request) as answer:
                assert answer.read() == b'{"a":1}'


def test_what_a_server_leaves_behind_is_gone_too(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    worker = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(told)!r}, "w").write(str(child.pid))
"""
    with Server("parent", lambda port: python(worker + SLOW_STARTER, port)):
        pid = int(told.read_text())
        assert is_running(pid)
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s and is_running(pid) and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.05)
    assert not is_running(pid) or " Z " in Path(f"/proc/{pid}/stat").read_text()
