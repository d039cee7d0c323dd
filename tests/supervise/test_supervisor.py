"""Ports that are shared, the private directory, and what a child is told."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from server.http_listening import bind_beside, listen, listen_shared
from server.settings import Settings
from server.supervise.orders import Orders
from server.supervise.runtime_directory import RuntimeDirectory
from server.supervise.told_settings import read_settings, write_settings


def test_connections_spread_over_the_sockets_of_a_port() -> None:
    listeners = listen_shared("127.0.0.1", 0, n=2)
    address = listeners[0].getsockname()
    callers = [socket.create_connection(address) for _ in range(200)]
    taken = []
    for listener in listeners:
        n = 0
        while True:
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                break
            n += 1
        taken.append(n)
    for each in (*callers, *listeners):
        each.close()
    assert sum(taken) == 200
    # 100 each on average; that one gets fewer than 60 is a matter of one in a hundred million.
    assert min(taken) > 60


def test_connections_go_to_the_others_until_somebody_listens_again() -> None:
    first, second = listen_shared("127.0.0.1", 0, n=2)
    address = first.getsockname()[:2]
    first.close()
    # Nor do they go to one that nobody listens on yet.
    again = bind_beside(*address)
    assert again.getsockname() == second.getsockname()
    callers = [socket.create_connection(address) for _ in range(20)]
    for _ in callers:
        second.accept()[0].close()
    for each in (*callers, second, again):
        each.close()


def test_a_port_that_somebody_else_shares_is_in_use_all_the_same() -> None:
    first = listen_shared("127.0.0.1", 0, n=2)
    port = first[0].getsockname()[1]
    for open_again in (lambda: listen_shared("127.0.0.1", port, n=2), lambda: listen("127.0.0.1", port)):
        with pytest.raises(ValueError, match=f"can't listen on 127.0.0.1:{port}: .*choose another --port"):
            open_again()
    for each in first:
        each.close()


def test_nobody_else_can_enter_the_private_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runtime = RuntimeDirectory.make()
    assert stat.S_IMODE(runtime.path.stat().st_mode) == 0o700
    assert Path(runtime.link.removeprefix("ipc://")).parent == runtime.http.parent == runtime.path


def test_a_path_that_no_socket_can_have_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(ValueError, match="set TMPDIR to a shorter path"):
        RuntimeDirectory.make()
    assert list(long.iterdir()) == []


def test_a_child_gets_the_settings_whole_and_the_token_in_no_argument() -> None:
    orders = Orders(
        name="worker 1",
        workers=("worker 1",),
        settings=Settings(token=SecretStr("secret"), models=("a=b:c", "d=e:f"), http_workers=1, batch_limit=8),
        runtime=RuntimeDirectory(Path("/run/x")),
        supervisor_pid=7,
        listener=5,
    )
    descriptor = orders.to_file()
    with os.fdopen(descriptor) as file:
        assert Orders.from_json(json.load(file)) == orders


def test_changed_settings_are_passed_on_whole_and_nobody_else_can_read_them(tmp_path: Path) -> None:
    path = RuntimeDirectory(tmp_path).settings
    with pytest.raises(ValueError, match="passed on none"):
        read_settings(path)
    for token in ("first", "second"):
        settings = Settings(token=SecretStr(token), models=("a=b:c",), queue_rows=7)
        write_settings(settings, path)
        assert read_settings(path) == settings
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
