"""Connections that drivers keep, with TLS too."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from loadtests.keepalive import Broken, KeepAlive, address_of
from loadtests.runs.figures import figures
from loadtests.runs.generator import Generator, Plan
from loadtests.runs.load import Load
from tests.loadtests.conftest import ScriptedServer
from tests.loadtests.runs.test_generator import doubling
from tests.loadtests.test_driver import answer, doubled


@pytest.fixture
def authority(tmp_path: Path) -> Any:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made, str(tmp_path / "ca.pem")


@pytest.fixture
def secured(authority: Any) -> Iterator[ScriptedServer]:
    """A server with TLS, whose answers come in a record for each half."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority[0].issue_cert("127.0.0.1").configure_cert(context)

    class Secured(ScriptedServer):
        def _serve(self, connection: socket.socket) -> None:
            try:
                super()._serve(context.wrap_socket(connection, server_side=True))
            except OSError:
                connection.close()

    def script(path: str, body: bytes) -> list[bytes]:
        whole = answer(doubled(body))
        return [whole[:20], whole[20:]]

    server = Secured(script)
    yield server
    server.close()


def plan_of(server: ScriptedServer, ca: str | None, **load: Any) -> Plan:
    host, port = address_of(server.url)
    return Plan(
        address=(host, port),
        host=f"{host}:{port}",
        questions=(doubling(),),
        load=Load(**{"callers": 2, "duration_s": 0.4, "warmup_s": 0.0, **load}),
        is_tls=True,
        ca=ca,
    )


def test_a_load_goes_over_tls_and_every_answer_is_right(secured: ScriptedServer, authority: Any) -> None:
    found = figures(Generator(plan_of(secured, authority[1])).run())
    assert found.n_failed == 0
    assert found.n_right == len(secured.asked) > 10


def test_a_server_whose_certificate_nobody_signed_is_not_loaded(secured: ScriptedServer) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Generator(plan_of(secured, None)).run()
    assert secured.asked == []


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("http://there", ("there", 80)),
        ("https://there/", ("there", 443)),
        ("http://[::1]:5", ("::1", 5)),
    ],
)
def test_an_address_is_host_and_port(url: str, address: tuple[str, int]) -> None:
    assert address_of(url, schemes=("http", "https")) == address


def test_a_connection_that_was_closed_is_broken_and_can_be_replaced(server: Any) -> None:
    server.script = lambda path, body: [b""]
    links = KeepAlive(address_of(server.url), patience_s=5)
    fd = links.open()
    links.send(fd, b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    links.poll(5)
    with pytest.raises(Broken, match="closed without an answer"):
        links.receive(fd)
    server.script = lambda path, body: [answer(b"{}")]
    fresh = links.replace(fd)
    links.send(fresh, b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    links.poll(5)
    assert links.receive(fresh) == (200, b"{}")
    assert links.receive(fresh) is None
    assert len(links) == 1
    links.close()
