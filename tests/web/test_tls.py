"""TLS on both ports: stock clients, certificates that are renewed, and files that can't be used."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
import trustme
from cryptography.hazmat.primitives import serialization

import rowwise
from rowwise.errors import ConnectionFailed
from server.http_server import new_event_loop
from server.settings import Settings
from server.tls import Tls
from server.web.rpc.server import RpcServer
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel
from tests.web.sockets import Connection, request, running, total, until


class Files:
    """An authority's certificate, and a server's with its key, as files."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self.certificate = directory / "server.pem"
        self.key = directory / "server.key"
        self.authority.cert_pem.write_to_path(self.ca)
        self.issue()

    def issue(self, authority: trustme.CA | None = None) -> None:
        """Write another certificate."""
        made = (authority or self.authority).issue_cert("localhost", "127.0.0.1")
        made.private_key_pem.write_to_path(self.key)
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))

    def settings(self, **others: Any) -> Settings:
        return Settings(tls_certificate=self.certificate, tls_key=self.key, **others)

    def client(self, **options: Any) -> ssl.SSLContext:
        """What a client that trusts the authority uses."""
        context = ssl.create_default_context(cafile=self.ca)
        for name, value in options.items():
            setattr(context, name, value)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def run(coroutine: Any) -> Any:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


async def connect(port: int, context: ssl.SSLContext) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port, ssl=context))


async def serial(port: int, context: ssl.SSLContext) -> str:
    """Return the number of the certificate that a new connection is shown."""
    connection = await connect(port, context)
    shown = connection.writer.get_extra_info("peercert")["serialNumber"]
    await connection.aclose()
    return str(shown)


def test_https_is_answered_as_http_is_to_stock_clients_and_ours(tmp_path: Path, files: Files) -> None:
    async def test() -> None:
        async with running(tmp_path, tls=Tls(files.settings())) as server:
            url = f"https://127.0.0.1:{server.port}"
            async with httpx.AsyncClient(verify=files.client(), trust_env=False) as http:
                for _ in range(3):
                    answer = await http.post(f"{url}/v1/models/sum:predict", json={"instances": [[1, 2, 3]]})
                    assert answer.json() == {"predictions": [6.0]}
                assert (await http.get(f"{url}/v2/health/live")).json() == {"live": True}
                large = np.arange(3 * 2**14, dtype=np.float32).reshape(-1, 3)
                answer = await http.post(f"{url}/v1/models/sum:predict", json={"instances": large[:9_000].tolist()})
                assert answer.json()["predictions"] == large[:9_000].sum(axis=1).tolist()

            def ours() -> None:
                with rowwise.Client(url, ca=files.ca) as client:
                    assert client.predict("sum", x=[1, 2, 3]) == 6
                with rowwise.Client(url) as client, pytest.raises(ConnectionFailed, match="certificate"):
                    client.predict("sum", x=[1, 2, 3])
                with pytest.raises(ConnectionFailed, match=r"nothing\.pem.*No such file"):
                    rowwise.Client(url, ca=tmp_path / "nothing.pem")

            await asyncio.to_thread(ours)

    run(test())


def test_pipelined_and_broken_requests_are_answered_over_tls_too(tmp_path: Path, files: Files) -> None:
    async def test() -> None:
        async with running(tmp_path, tls=Tls(files.settings())) as server:
            connection = await connect(server.port, files.client())
            connection.send(b"".join(request(number, 0, 0) for number in range(100)))
            assert [total(await connection.answer()) for _ in range(100)] == list(range(100))
            connection.send(request(1, 2, 3) + b"POST /v1/models/sum:predict HTTP/1.1\r\n\r\n")
            assert total(await connection.answer()) == 6
            assert (await connection.answer())[0] == 400
            assert await connection.is_closed()
            await connection.aclose()
            # Who speaks no TLS is let go, and others are served.
            plain = Connection(*await asyncio.open_connection("127.0.0.1", server.port))
            plain.send(request(1, 2, 3))
            assert await plain.is_closed()
            await plain.aclose()
            again = await connect(server.port, files.client())
            again.send(request(1, 1, 1))
            assert total(await again.answer()) == 3
            await again.aclose()

    run(test())


def test_old_versions_are_refused_and_each_port_offers_its_protocol(tmp_path: Path, files: Files) -> None:
    async def test() -> None:
        async with running(tmp_path, tls=Tls(files.settings())) as server:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = files.client(maximum_version=version)
                context.set_alpn_protocols(["h2", "http/1.1"])
                connection = await connect(server.port, context)
                shown = connection.writer.get_extra_info("ssl_object")
                assert shown.selected_alpn_protocol() == "http/1.1"
                assert shown.version() == version.name.replace("v1_", "v1.")
                await connection.aclose()
            old = files.client(minimum_version=ssl.TLSVersion.TLSv1_1, maximum_version=ssl.TLSVersion.TLSv1_1)
            old.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.raises((ssl.SSLError, OSError)):
                await connect(server.port, old)

    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        run(test())


def test_a_certificate_that_was_renewed_is_shown_to_new_connections_and_old_ones_stay(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        tls = Tls(files.settings())
        async with running(tmp_path, tls=tls) as server:
            context = files.client()
            old = await connect(server.port, context)
            before = await serial(server.port, context)
            files.issue()
            assert await serial(server.port, context) == before
            tls.renew()
            after = await serial(server.port, context)
            assert after != before
            old.send(request(1, 2, 3))
            assert total(await old.answer()) == 6
            await old.aclose()
            files.key.write_text("half a ke")
            tls.renew()
            assert await serial(server.port, context) == after

    with caplog.at_level(logging.INFO, "rowwise"):
        run(test())
    assert "the certificate stays as it is: tls_key" in caplog.text


def test_clients_need_a_certificate_where_an_authority_is_named_and_the_one_in_force_counts(
    tmp_path: Path, files: Files
) -> None:
    clients = tmp_path / "clients.pem"
    ours, others = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(clients)

    def with_certificate(authority: trustme.CA) -> ssl.SSLContext:
        context = files.client()
        authority.issue_cert("caller@example.org").configure_cert(context)
        return context

    async def is_let_in(port: int, context: ssl.SSLContext) -> bool:
        try:
            connection = await connect(port, context)
            connection.send(request(1, 2, 3))
            answer = await connection.answer()
        except (OSError, asyncio.IncompleteReadError):
            return False
        await connection.aclose()
        return total(answer) == 6

    async def test() -> None:
        tls = Tls(files.settings(tls_client_ca=clients))
        async with running(tmp_path, tls=tls) as server:
            assert await is_let_in(server.port, with_certificate(ours))
            assert not await is_let_in(server.port, with_certificate(others))
            assert not await is_let_in(server.port, files.client())
            others.cert_pem.write_to_path(clients)
            tls.renew()
            assert await is_let_in(server.port, with_certificate(others))
            assert not await is_let_in(server.port, with_certificate(ours))

    run(test())


def test_grpc_over_tls_is_answered_to_stock_clients(upload_dir: Path, files: Files) -> None:
    async def test() -> None:
        service = Service(upload_dir)
        service.catalog.serve(ScriptedModel("sum", 3))
        server = RpcServer(service.app, service.catalog, connections=100)  # type: ignore[arg-type]
        listener = socket.create_server(("127.0.0.1", 0))
        tls = Tls(files.settings())
        await server.start(listener, tls=tls.grpc)
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def with_triton() -> None:
            with triton.InferenceServerClient(address, ssl=True, root_certificates=str(files.ca)) as client:
                assert client.is_server_live()
                tensor = triton.InferInput("x", [2, 3], "FP32")
                tensor.set_data_from_numpy(np.float32([[1, 2, 3], [4, 5, 6]]))
                assert client.infer("sum", [tensor]).as_numpy("total").tolist() == [6.0, 15.0]

        await asyncio.to_thread(with_triton)
        credentials = grpc.ssl_channel_credentials(root_certificates=files.ca.read_bytes())
        async with grpc.aio.secure_channel(address, credentials) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            assert await live(b"") == b"\x08\x01"
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=5)
        await server.stop(1.0)

    run(test())


async def half_open(port: int, n: int, address: str = "127.0.0.1") -> list[Connection]:
    """Connect so often, and say nothing."""
    return [Connection(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))) for _ in range(n)]


async def n_closed(connections: list[Connection]) -> int:
    """Count those that were ended, once what was to be ended is."""
    await asyncio.sleep(0.1)
    return sum(connection.reader.at_eof() or connection.reader.exception() is not None for connection in connections)


async def close_all(*connections: Connection) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):
            await connection.aclose()


def test_a_flood_of_half_open_handshakes_went_past_the_limit_of_connections(tmp_path: Path, files: Files) -> None:
    async def test() -> None:
        async with running(tmp_path, tls=Tls(files.settings()), max_connections=32) as server:
            before = await connect(server.port, files.client())
            handshakes = server.server.door
            assert handshakes is not None
            [slow] = await half_open(server.port, 1, "127.0.0.2")
            flood = await half_open(server.port, 100)
            assert await n_closed(flood) == 100 - (31 - 1)
            assert len(handshakes) == 31
            # Who was there is not disturbed, nor who comes, nor who takes longer than the flood.
            before.send(request(1, 2, 3))
            assert total(await before.answer()) == 6
            newcomer = await connect(server.port, files.client())
            newcomer.send(request(1, 1, 1))
            assert total(await newcomer.answer()) == 3
            await slow.writer.start_tls(files.client(), server_hostname="127.0.0.1")
            slow.send(request(5, 0, 0))
            assert total(await slow.answer()) == 5
            assert len(handshakes) + len(server.server.server_state.connections) <= 32
            await close_all(*flood)
            await until(lambda: len(handshakes) == 0)
            await close_all(before, newcomer, slow)

    run(test())


def test_who_finds_no_room_is_told_so_over_tls_too(tmp_path: Path, files: Files) -> None:
    async def test() -> None:
        async with running(tmp_path, tls=Tls(files.settings()), max_connections=2) as server:
            server.model.holds = True
            busy = [await connect(server.port, files.client()) for _ in range(2)]
            for connection in busy:
                connection.send(request(1, 2, 3))
            await until(lambda: len(server.model.held) == 2)
            newcomer = await connect(server.port, files.client())
            newcomer.send(request(1, 2, 3))
            assert (await newcomer.answer())[0] == 503
            await close_all(newcomer, *busy)

    run(test())


def test_a_server_that_stops_waits_a_moment_for_handshakes_and_ends_the_others(tmp_path: Path, files: Files) -> None:
    async def test() -> None:
        async with running(tmp_path, tls=Tls(files.settings())) as server:
            half, quick = await half_open(server.port, 2)
            await asyncio.sleep(0.1)
            server.server.should_exit = True
            await asyncio.sleep(0.2)
            await quick.writer.start_tls(files.client(), server_hostname="127.0.0.1")
            quick.send(request(1, 2, 3))
            assert total(await quick.answer()) == 6
            assert await half.is_closed()
            await close_all(half, quick)

    run(test())


def test_half_open_handshakes_of_grpc_are_bounded_too(upload_dir: Path, files: Files) -> None:
    async def test() -> None:
        service = Service(upload_dir)
        server = RpcServer(service.app, service.catalog, connections=20)  # type: ignore[arg-type]
        listener = socket.create_server(("127.0.0.1", 0))
        await server.start(listener, tls=Tls(files.settings()).grpc)
        port = listener.getsockname()[1]
        flood = await half_open(port, 50)
        assert await n_closed(flood) == 30
        assert server.door is not None
        assert len(server.door) == 20
        credentials = grpc.ssl_channel_credentials(root_certificates=files.ca.read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            assert await channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"") == b"\x08\x01"
        await server.stop(1.0)
        assert await n_closed(flood) == 50
        await close_all(*flood)

    run(test())


def test_files_that_cannot_be_used_are_named_with_what_is_wrong_and_what_to_do(tmp_path: Path, files: Files) -> None:
    (tmp_path / "other").mkdir()
    other = Files(tmp_path / "other")
    nothing, empty, encrypted = tmp_path / "no.pem", tmp_path / "empty.pem", tmp_path / "encrypted.key"
    empty.write_text("")
    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    for given, says in (
        ({"tls_key": files.key}, "tls_key is set and tls_certificate is not"),
        ({"tls_client_ca": files.ca}, "tls_client_ca is set and tls_certificate is not"),
        (
            {"tls_certificate": nothing, "tls_key": files.key},
            f"tls_certificate '{nothing}' can't be read: No such file",
        ),
        (
            {"tls_certificate": files.certificate, "tls_key": nothing},
            f"tls_key '{nothing}' can't be read: No such file",
        ),
        ({"tls_certificate": tmp_path, "tls_key": files.key}, "can't be read: Is a directory"),
        ({"tls_certificate": empty, "tls_key": files.key}, f"tls_certificate '{empty}': expected a certificate in PEM"),
        ({"tls_certificate": files.certificate, "tls_key": empty}, f"tls_key '{empty}': expected a private key in PEM"),
        ({"tls_certificate": files.certificate}, "found none; add it, or name its file as tls_key"),
        ({"tls_certificate": files.certificate, "tls_key": other.key}, "it is not the key of the certificate in"),
        ({"tls_certificate": files.certificate, "tls_key": encrypted}, "the key is encrypted"),
        (
            {"tls_certificate": files.certificate, "tls_key": files.key, "tls_client_ca": empty},
            "expected the certificates of authorities in PEM",
        ),
    ):
        with pytest.raises(ValueError, match="tls_") as caught:
            Tls.of(Settings(**given))  # type: ignore[arg-type]
        assert says in str(caught.value), given
    assert Tls.of(Settings()) is None
    both = tmp_path / "both.pem"
    both.write_bytes(files.certificate.read_bytes() + files.key.read_bytes())
    assert Tls.of(Settings(tls_certificate=both)) is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_key_that_may_not_be_read_is_named(files: Files) -> None:
    files.key.chmod(0)
    with pytest.raises(ValueError, match=r"tls_key .* can't be read: Permission denied"):
        Tls.of(files.settings())
