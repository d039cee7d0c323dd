"""TLS of a server of several processes: each shows the certificate, and after SIGHUP the one that is there then."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trustme

from loadtests.ports import free_port
from tests.e2e.server_process import ROOT, ServerProcess

pytestmark = pytest.mark.e2e


def shown(address: tuple[str, int], ca: Path) -> str:
    """Return the certificate that a new connection is shown."""
    return ssl.get_server_certificate(address, ca_certs=str(ca), timeout=30)


@pytest.mark.long
def test_a_renewed_certificate_is_shown_by_every_process_and_the_command_reaches_it(tmp_path: Path) -> None:
    authority, grpc_port = trustme.CA(), free_port()
    ca, pem = tmp_path / "ca.pem", tmp_path / "server.pem"
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    options = ("--http-workers", "2", "--grpc-port", str(grpc_port), "--tls-certificate", str(pem))
    with ServerProcess(tmp_path / "store", *options) as server:
        http = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        assert server.url.startswith("https://")
        deadline_s = time.monotonic() + 60
        while "gRPC answers" not in server.log or server.log.count("Rowwise answers") < 2:
            assert time.monotonic() < deadline_s, server.log
            time.sleep(0.05)
        before = {shown(http, ca) for _ in range(8)} | {shown(("127.0.0.1", grpc_port), ca)}
        assert len(before) == 1
        listing = [sys.executable, "-m", "rowwise", "models", "--url", server.url]
        trusting = subprocess.run([*listing, "--ca", str(ca)], cwd=ROOT, capture_output=True, text=True, check=False)
        assert trusting.returncode == 0, trusting.stderr
        others = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (others.returncode, "--ca" in others.stderr) == (1, True)
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
        server.process.send_signal(signal.SIGHUP)
        while server.log.count("connections made from now on") < 3:
            assert time.monotonic() < deadline_s, server.log
            time.sleep(0.05)
        after = {shown(http, ca) for _ in range(8)} | {shown(("127.0.0.1", grpc_port), ca)}
        assert len(after) == 1
        assert after != before
        assert server.terminate() == 0
