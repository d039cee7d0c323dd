"""``rowwise doctor`` on a machine with one thing wrong, made wrong for real: it names it, and what to do.

Each test is also given what is found of the machine as it is, where that finding must not be.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from rowwise.doctor import Finding, Level, examine
from rowwise.doctor.disk import disk_findings
from rowwise.doctor.jail import ask_jail, has_bubblewrap, jail_findings
from rowwise.doctor.processes import processes_finding
from rowwise.doctor.tensorflow import ask_tensorflow, tensorflow_findings
from server.jail import PROMISES
from server.jail.jail import n_threads
from server.jail.system_calls import filter_system_calls, has_filter
from server.rights import TokenEntry, add_token
from server.settings import Settings
from server.store import Store
from tests.doctor.seeding import become_nobody, in_a_child
from tests.source_files import ROOT
from tests.store.operations import build, noon

Look = Callable[..., list[Finding]]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Look at this machine as a server with free ports and a new store would find it."""
    for name in [name for name in os.environ if name.startswith("ROWWISE_") and name != "ROWWISE_CACHE"]:
        monkeypatch.delenv(name)

    def look(*, url: str | None = None, **given: Any) -> list[Finding]:
        usual = {"store": str(tmp_path / "store"), "port": 0, "grpc_port": 0}
        return list(examine({**usual, **given}, url=url, is_quick=True))

    return look


def the(findings: list[Finding], check: str, text: str, *, level: Level = Level.WRONG) -> Finding:
    """Return the one finding that says it; it has a reason and a next step."""
    (found,) = [each for each in findings if each.check == check and text in each.what and each.level == level]
    assert found.why
    assert found.to_do
    return found


def test_a_machine_as_it_is_has_nothing_wrong(look: Look) -> None:
    assert [finding for finding in look() if finding.level is Level.WRONG] == []


def test_a_port_that_somebody_listens_on(look: Look) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = the(look(port=port), "ports", f"127.0.0.1:{port}")
        assert f"process {os.getpid()}" in found.what
        assert "--port" in found.to_do
        the(look(grpc_port=port), "ports", "--grpc-port")
    assert [finding.level for finding in look(port=port) if finding.check == "ports"] == [Level.FINE]


def test_few_file_descriptors(look: Look) -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    the(in_a_child(lower, look), "descriptors", "256 file descriptors")
    the(in_a_child(lower, lambda: look(max_connections=200)), "descriptors", "max_connections is 200")


def test_a_limit_of_the_address_space(look: Look) -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))

    assert "ulimit -v" in the(in_a_child(lower, look), "memory", "8.0 GiB").to_do


def test_few_processes_for_this_user() -> None:
    def lower() -> None:
        become_nobody()
        resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))

    def look() -> list[Finding]:
        uid, (limit, _) = os.geteuid(), resource.getrlimit(resource.RLIMIT_NPROC)
        n_running = n_threads(uid)
        return [processes_finding(uid=uid, limit=limit, n_running=n_running, n_cores=2, cgroup_processes=None)]

    the(in_a_child(lower, look), "processes", "may have 100 processes")


def test_more_processes_than_cores(look: Look) -> None:
    def narrow() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    found = in_a_child(narrow, lambda: look(http_workers=4))
    the(found, "cores", "keep 5 cores busy, and there are 1", level=Level.ADVICE)
    assert not [each for each in in_a_child(narrow, look) if each.check == "cores" and "busy" in each.what]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user can read."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_a_store_that_can_not_be_written(shared: Path) -> None:
    with Store.open(shared / "store", now=noon):
        pass
    settings = Settings(store=shared / "store")

    def look() -> list[Finding]:
        return list(disk_findings(settings, temporary="/tmp"))

    found = the(in_a_child(become_nobody, look), "store", "can't be written: Permission denied")
    assert "nothing can be registered" in found.why
    settings = Settings(store=shared / "new")
    found = the(in_a_child(become_nobody, look), "store", "can't be written")
    assert "can't be made" in found.why


def test_a_disk_that_is_full(tmp_path: Path, look: Look) -> None:
    """In a mount namespace, whose /tmp is small; where none can be made there is no disk that can be filled."""
    script = (
        "import sys; from pathlib import Path; from rowwise.doctor.disk import disk_findings;"
        "from server.settings import Settings;"
        "print([(f.check, str(f.level)) for f in disk_findings(Settings(store=Path('/mnt/store')), temporary='/mnt')])"
    )
    mount = 'mount -t tmpfs -o size=1m none /mnt && exec "$0" -c "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, sys.executable, script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    assert done.stdout.strip() == "[('store', 'wrong'), ('temporary', 'wrong')]", done.stderr
    assert not [each for each in look() if each.check == "temporary" and each.level is Level.WRONG]


def test_no_place_for_temporary_files(tmp_path: Path) -> None:
    settings = Settings(store=tmp_path)
    for temporary in ("", str(tmp_path / "gone")):
        the(list(disk_findings(settings, temporary=temporary)), "temporary", "be written")


def test_a_store_in_use(look: Look, tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", now=noon):
        found = the(look(), "store", f"in use by process {os.getpid()}")
        assert "--url" in found.to_do
        assert not [each for each in look(follow_store=True) if each.level is Level.WRONG]
    assert not [each for each in look() if "in use" in each.what]


def test_a_store_that_is_damaged(look: Look, tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", now=noon) as store:
        build(store, "a", "one")
    assert "1 models, 1 versions" in str(look())
    record = tmp_path / "store" / "models" / "a" / "1" / "record.json"
    record.write_text("{")
    the(look(), "store", "record.json")
    (tmp_path / "store" / "format.json").write_text("nonsense")
    the(look(), "store", "is damaged")


def test_a_directory_that_is_something_else(look: Look, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "letter.txt").write_text("Dear")
    the(look(), "store", "is no store")
    found = look(store=str(tmp_path / "store" / "letter.txt"))
    assert [each.what for each in found if each.level is Level.WRONG] == [the(found, "store", "is no directory").what]


def test_a_key_that_is_no_setting(look: Look, tmp_path: Path) -> None:
    file = tmp_path / "rowwise.toml"
    file.write_text("# limits\nquue_rows = 5\n")
    found = the(look(config=file), "settings", f"{file}:2")
    assert "did you mean 'queue_rows'" in found.what
    file.write_text("# limits\nqueue_rows = 0\n")
    the(look(config=file), "settings", f"{file}:2")
    file.write_text("queue_rows = 5\n")
    assert [each.level for each in look(config=file) if each.check == "settings"] == [Level.FINE]


def test_files_with_secrets_that_everybody_may_read(look: Look, tmp_path: Path) -> None:
    tokens, file = tmp_path / "tokens.toml", tmp_path / "rowwise.toml"
    add_token(tokens, TokenEntry(name="shop", sha256="0" * 64, scopes=("read",)))
    file.write_text('token = "very secret"\n')
    file.chmod(0o640)
    sound = look(tokens_file=tokens, config=file)
    assert [each.level for each in sound if each.check in {"tokens", "settings"}] == [Level.FINE] * 2

    tokens.chmod(0o644)
    file.chmod(0o644)
    found = look(tokens_file=tokens, config=file)
    assert f"chmod o-r {tokens}" in the(found, "tokens", "can read", level=Level.ADVICE).to_do
    the(found, "settings", "every user of this machine can read")
    assert "very secret" not in str(found)
    tokens.chmod(0o646)
    the(look(tokens_file=tokens), "tokens", "chmod o-w")


def write_certificate(directory: Path, *, from_days: float = -1, until_days: float = 100) -> dict[str, Any]:
    now = datetime.now(UTC)
    made = trustme.CA().issue_cert(
        "localhost", not_before=now + timedelta(days=from_days), not_after=now + timedelta(days=until_days)
    )
    certificate, key = directory / "server.pem", directory / "server.key"
    key.touch(mode=0o600)
    made.private_key_pem.write_to_path(key)
    certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    return {"tls_certificate": certificate, "tls_key": key}


def test_a_certificate_that_has_expired(look: Look, tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    assert [each.level for each in look(**files) if each.check == "tls"] == [Level.FINE]
    found = the(look(**write_certificate(tmp_path, from_days=-30, until_days=-3)), "tls", "expired 3 days ago")
    assert "SIGHUP" in found.to_do
    the(look(**write_certificate(tmp_path, from_days=3)), "tls", "is valid from")
    the(look(**write_certificate(tmp_path, until_days=5.5)), "tls", "expires in", level=Level.ADVICE)


def test_a_key_that_is_anothers_or_open_to_all(look: Look, tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    files["tls_key"].chmod(0o644)
    the(look(**files), "tls", "every user of this machine can read")
    other = tmp_path / "other"
    other.mkdir()
    mixed = {**files, "tls_key": write_certificate(other)["tls_key"]}
    the(look(**mixed), "tls", "is not the key of the certificate")
    the(look(tls_key=files["tls_key"]), "tls", "tls_certificate is not")


def stub(directory: Path, text: str) -> None:
    (directory / "tensorflow").mkdir(parents=True, exist_ok=True)
    (directory / "tensorflow" / "__init__.py").write_text(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('__version__ = "2.19.0"', "TensorFlow 2.19.0"),
        ("raise ModuleNotFoundError(\"No module named 'tensorflow'\")", "can't be imported: ModuleNotFoundError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
        ('__version__ = "2.21.0"', "can't compute 1 + 1"),
    ],
)
def test_a_tensorflow_that_is_not_there_or_not_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    stub(tmp_path, text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = the(list(tensorflow_findings(ask_tensorflow(), n_device_nodes=0)), "tensorflow", says)
    assert "pip install" in found.to_do or says in {"SIGILL", "can't compute 1 + 1"}


def test_the_tensorflow_of_this_installation_is_the_right_one() -> None:
    found = list(tensorflow_findings(ask_tensorflow(), n_device_nodes=0))
    assert {each.level for each in found} == {Level.FINE}


def test_a_machine_that_refuses_namespaces() -> None:
    """As most containers do, and some distributions to ordinary users: bubblewrap is there and does not work."""
    if not has_filter():
        pytest.skip("there is no libseccomp")

    def refuse() -> None:
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # no_new_privs: who is not root may filter then
        filter_system_calls(no_sockets=False)

    def look(**given: Any) -> list[Finding]:
        settings = Settings(**given)
        return list(jail_findings(settings, ask_jail(settings), has_bubblewrap=has_bubblewrap()))

    found = the(in_a_child(refuse, look), "jail", "does not keep all", level=Level.ADVICE)
    assert any(promise in found.what for promise in PROMISES)
    assert "namespaces" in found.to_do
    the(in_a_child(refuse, lambda: look(jail="required")), "jail", "does not keep all")
    assert "source text is refused" in the(in_a_child(refuse, lambda: look(allow_source=True)), "jail", "does not").why
    before = str(look())
    assert found.what not in before


def test_a_clock_that_went_back(look: Look, tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", now=noon):
        pass
    assert not [each for each in look() if each.check == "clock" and each.level is Level.WRONG]
    ahead = time.time() + 100 * 3_600
    os.utime(tmp_path / "store" / "format.json", (ahead, ahead))
    the(look(), "clock", "100 hours from now")


def test_packages_that_are_not_installed(look: Look) -> None:
    the(look(models=["m=no_such_package.models:predict"]), "packages", "'no_such_package'")
    assert not [each for each in look(models=["m=models.digits:predict"]) if each.level is Level.WRONG]


@pytest.fixture
def answering() -> Iterator[Callable[[int, bytes], str]]:
    """Give servers that answer everything with one thing."""
    running: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def serve(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_that_is_not_ready(look: Look, answering: Callable[[int, bytes], str]) -> None:
    ready = look(url=answering(200, b'{"ready": true}'))
    assert [each.level for each in ready if each.check == "server"] == [Level.FINE]
    body = b'{"ready": false, "error": "not ready", "reasons": ["model \'a\' is loading"]}'
    the(look(url=answering(503, body)), "server", "model 'a' is loading")
    the(look(url=answering(200, b"<html>")), "server", "is no Rowwise server")
    the(look(url="http://127.0.0.1:1"), "server", "no server answers")


def test_what_a_running_server_has_in_use_is_as_it_should_be(
    look: Look, tmp_path: Path, answering: Callable[[int, bytes], str]
) -> None:
    url = answering(200, b'{"ready": true}')
    port = int(url.rpartition(":")[2])
    with Store.open(tmp_path / "store", now=noon):
        assert [each.what for each in look(port=port, url=url) if each.level is Level.WRONG] == []
        assert {each.check for each in look(port=port) if each.level is Level.WRONG} == {"store", "ports"}
