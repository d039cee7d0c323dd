"""A hostile build in every kind of jail that this machine has: what it tries is refused, and it harms nobody.

What needs bubblewrap, namespaces or Landlock is skipped where the machine lacks it, and says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from server.build import (
    ArchiveSource,
    BuildDiskExceeded,
    Builder,
    BuildJail,
    BuildLimits,
    BuildMemoryExceeded,
    BuildRequest,
    BuildTimeout,
    ImportSource,
    JailIncomplete,
    JailPolicy,
)
from server.jail import Jail, Means
from tests.build.doubles.builds import DOUBLE, ENVIRONMENT, ROOT, ignore, is_running

HOSTILE = DOUBLE.with_name("hostile.py")
MEANS = [Means.BUBBLEWRAP, Means.NAMESPACES, Means.LANDLOCK]


@dataclass
class Machine:
    """A store with somebody else's model in it, secrets around it, a server that listens, and a jail of one kind."""

    root: Path
    jail: BuildJail
    found: Jail
    where: dict[str, Any]

    def request(self, *, ours: bool = True) -> BuildRequest:
        version = (
            self.root / "store" / "models" / "digits" / str(len(list(self.root.glob("store/models/digits/*"))) + 1)
        )
        for name in ("staging", "source"):
            (version / name).mkdir(parents=True)
        archive = version / "source" / "archive"
        archive.write_bytes(b"an upload")
        archive.chmod(0o600)
        return BuildRequest(
            name="digits",
            version=1,
            spec={},
            source=ImportSource("models.digits:predict") if ours else ArchiveSource(archive, "m.zip"),
            source_dir=version / "source",
            output_dir=version / "staging",
        )

    def build(self, behaviour: str, *, double: Path = HOSTILE, asked: BuildRequest | None = None, **limits: Any) -> Any:
        """Build with a double, and return what it found. Errors: those of the build."""
        asked = asked or self.request()
        chosen = BuildLimits(**limits)
        self.jail.change(chosen)
        command = (sys.executable, str(double), behaviour, *([json.dumps(self.where)] if double is HOSTILE else []))
        builder = Builder(limits=chosen, command=command, environment=ENVIRONMENT, jail=self.jail)
        asyncio.run(asyncio.wait_for(builder.build(asked, ignore), 120))
        found = asked.output_dir / "found.json"
        return json.loads(found.read_text()) if found.exists() else None


@pytest.fixture(scope="module", params=MEANS, ids=[str(means) for means in MEANS])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    root = tmp_path_factory.mktemp("machine")
    for name in ("store/uploads", "store/models/other/1/artifact", "cache"):
        (root / name).mkdir(parents=True)
    secrets = {
        "token": root / "token",
        "another model": root / "store/models/other/1/artifact/model.json",
        "format of the store": root / "store/format.json",
    }
    for name, path in secrets.items():
        path.write_text(f"secret: {name}")
        path.chmod(0o644)
    as_root = root / "cache" / "id-as-root"
    shutil.copy("/usr/bin/id", as_root)
    as_root.chmod(0o4755)
    policy = JailPolicy(hidden=(root / "store", root / "token"))
    environment = {**ENVIRONMENT, "ROWWISE_CACHE": str(root / "cache")}
    jail = BuildJail(
        policy,
        scratch=root / "store/uploads",
        environment=environment,
        without=[means for means in MEANS if means is not request.param],
    )
    found = jail.found()
    assert found is not None
    if found.means is not request.param:
        pytest.skip(f"this machine gives no jail by {request.param}")
    abstract = f"rowwise-test-{os.getpid()}-{request.param}"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0" + abstract)
        local.listen()
        where = {
            "secrets": {name: str(path) for name, path in secrets.items()}
            | {"shadow": "/etc/shadow", "passwd": "/etc/passwd", "home": str(Path.home() / ".bashrc")},
            "others": {
                "another model": str(secrets["another model"]),
                "the store": str(root / "store/new"),
                "tests": str(ROOT / "tests/new"),
                "etc": "/etc/new",
            },
            "store": str(root / "store"),
            "port": listener.getsockname()[1],
            "abstract": abstract,
            "server_pid": os.getpid(),
            "as_root": str(as_root),
            "code": str(ROOT / "server/__init__.py"),
        }
        yield Machine(root, jail, found, where)


@pytest.fixture(scope="module")
def tried(machine: Machine) -> dict[str, str]:
    """What a hostile build got, of all that it tried."""
    found: dict[str, str] = machine.build("look")
    return found


def refused(tried: dict[str, str], *names: str) -> None:
    got = {name: tried[name] for name in names if not tried[name].startswith("refused")}
    assert not got, got


def test_a_build_reads_no_token_no_password_and_no_other_model(tried: dict[str, str]) -> None:
    refused(tried, *(name for name in tried if name.startswith("read ")))
    assert sum(name.startswith("read ") for name in tried) == 6


def test_a_build_writes_nowhere_but_where_it_builds(tried: dict[str, str], machine: Machine) -> None:
    refused(tried, "write another model", "write tests", "write etc", "source code")
    # Where the store lies below /tmp, as here, the jail may have a directory of that name, in memory of its own.
    assert not Path(machine.where["others"]["the store"]).exists()
    assert Path(machine.where["secrets"]["another model"]).read_text() == "secret: another model"


def test_a_build_reaches_nobody_over_any_network(tried: dict[str, str]) -> None:
    refused(tried, "tcp", "udp", "abstract socket")


def test_a_build_neither_reads_nor_stops_nor_debugs_the_server(tried: dict[str, str], machine: Machine) -> None:
    if machine.found.means is Means.LANDLOCK:
        refused(tried, "environ of the server", "signal to the server", "ptrace of the server")
        return
    # The number may be that of a process of its own.
    assert len(json.loads(tried["processes"])) <= 4
    assert b"pytest".decode() not in tried["command of the server"]
    refused(tried, "ptrace of the server")


def test_a_build_has_no_privileges_and_gains_none(tried: dict[str, str], machine: Machine) -> None:
    refused(tried, "setuid(0)", "a user namespace", "more open files")
    status = dict(line.split(":\t", 1) for line in tried["status"].splitlines() if ":\t" in line)
    assert {name: int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == dict.fromkeys(
        ("CapPrm", "CapEff", "CapInh", "CapAmb"), 0
    )
    assert status["NoNewPrivs"] == "1"
    if machine.found.account is not None:
        assert status["Uid"].split() == [str(machine.found.account.uid)] * 4


def test_a_program_that_belongs_to_root_runs_as_whoever_runs_it(tried: dict[str, str], machine: Machine) -> None:
    if os.getuid() or machine.found.account is None:
        pytest.skip("the builder is of the server's own user here")
    assert tried["a program that is root"] == f"got: b'{machine.found.account.uid}\\n'"


def test_a_build_gets_no_hundred_gigabytes_and_no_memory_that_nobody_counts(tried: dict[str, str]) -> None:
    refused(tried, "100 GB", "a file in memory")


def test_a_build_inherits_its_own_pipes_and_nothing_else(tried: dict[str, str]) -> None:
    assert json.loads(tried["descriptors"]) == ["/memfd", "pipe", "pipe", "pipe"]


def test_a_build_has_an_environment_of_its_own(tried: dict[str, str]) -> None:
    assert set(json.loads(tried["environment"])) <= {
        *("HOME", "LC_CTYPE", "PATH", "PWD", "PYTHONFAULTHANDLER", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONUSERBASE"),
        *("ROWWISE_BUILD_MARK", "ROWWISE_CACHE", "TMPDIR"),
    }


def test_a_fork_bomb_ends_at_its_limit_and_is_gone_with_its_build(machine: Machine) -> None:
    if "limits" in machine.found.broken:
        pytest.skip(f"not bounded in this jail: {machine.found.broken['limits']}")
    found = machine.build("fork-bomb", build_processes=60)
    # On top of what the user runs already, where it is the server's own.
    assert 20 < found["forks"] < (60 if machine.found.account is not None else 2_000)
    assert "unavailable" in found["error"]
    assert not [pid for pid in processes() if b"hostile.py" in command_of(pid)]


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() if is_running(pid) else b""
    return b""


def test_a_build_that_fills_the_disk_is_ended_at_its_limit(machine: Machine) -> None:
    asked = machine.request()
    limit = 20 * 2**20
    with pytest.raises(BuildDiskExceeded, match=f"over build_disk_bytes = {limit}"):
        machine.build("fill-the-disk", asked=asked, build_disk_bytes=limit, disk_interval_s=0.02)
    written = sum(path.stat().st_size for path in asked.output_dir.iterdir())
    assert written < 40 * limit


def test_a_file_larger_than_the_limit_is_refused_as_it_is_written(machine: Machine) -> None:
    assert "File too large" in machine.build("one-large-file")


def test_directories_in_memory_are_small_or_can_t_be_written(machine: Machine) -> None:
    for place, outcome in machine.build("fill-the-memory-of-files").items():
        assert outcome.startswith("refused"), (place, outcome)


@pytest.mark.parametrize("behaviour", ["grow", "grow-in-an-orphan"])
def test_a_jailed_build_that_eats_memory_is_ended(machine: Machine, behaviour: str) -> None:
    with pytest.raises(BuildMemoryExceeded):
        machine.build(behaviour, double=DOUBLE, build_memory_bytes=160 * 2**20)


def test_a_jailed_build_that_never_ends_is_ended(machine: Machine) -> None:
    with pytest.raises(BuildTimeout):
        machine.build("ignore-sigterm", double=DOUBLE, build_timeout_s=2)
    assert not [pid for pid in processes() if str(DOUBLE).encode() in command_of(pid)]


def test_what_a_build_made_is_the_server_s_again_and_is_no_program_of_another(machine: Machine) -> None:
    asked = machine.request()
    machine.build("links", asked=asked)
    (link,) = [path for path in asked.output_dir.iterdir() if path.is_symlink()]
    assert {path.lstat().st_uid for path in asked.output_dir.rglob("*")} == {os.getuid()}
    assert not (asked.output_dir / "program").stat().st_mode & 0o6000
    # Links are left as they are, for the store to refuse them: what they lead to is not touched.
    assert Path(machine.where["secrets"]["token"]).read_text() == "secret: token"
    assert link.lstat().st_uid == os.getuid()


def test_what_callers_handed_in_sees_neither_the_operator_s_code_nor_trained_weights(machine: Machine) -> None:
    # The double itself lies among the operator's code.
    with pytest.raises(Exception, match=r"can't open file|No such file|Permission denied"):
        machine.build("look", asked=machine.request(ours=False))


def test_weights_that_root_has_kept_are_read_by_builds_of_the_operator_s_code(machine: Machine) -> None:
    """The digits model failed with "Permission denied" where the demo had been run before there was a jail."""
    if machine.found.account is None:
        pytest.skip("the builder is of the server's own user here")
    kept, other = machine.root / "cache" / "kept-1.npz", machine.root / "cache" / "not-weights"
    for path in (kept, other):
        path.write_bytes(b"")
        path.chmod(0o600)
    with machine.jail.around(machine.request(ours=True), ["true"]):
        assert kept.stat().st_uid == machine.found.account.uid
        assert other.stat().st_uid == os.getuid()


@pytest.mark.skipif(os.getuid() != 0, reason="only root builds as another user")
def test_weights_of_a_better_jail_are_root_s_again_where_root_builds(machine: Machine) -> None:
    if machine.found.account is not None:
        pytest.skip("another user builds here")
    kept = machine.root / "cache" / "kept-2.npz"
    kept.write_bytes(b"")
    os.chown(kept, 61_000, 61_000)
    with machine.jail.around(machine.request(ours=True), ["true"]):
        assert kept.stat().st_uid == 0


def test_a_jail_that_has_to_be_whole_refuses_to_build_where_it_is_not(tmp_path: Path) -> None:
    jail = BuildJail(JailPolicy(mode="required"), scratch=tmp_path, environment=ENVIRONMENT, without=MEANS)
    builder = Builder(command=(sys.executable, str(DOUBLE), "good"), environment=ENVIRONMENT, jail=jail)
    asked = BuildRequest(
        name="m", version=1, spec={}, source=ImportSource("m:f"), source_dir=tmp_path, output_dir=tmp_path
    )
    with pytest.raises(JailIncomplete, match="jail = required"):
        asyncio.run(builder.build(asked, ignore))


def test_without_any_means_it_builds_all_the_same_and_says_what_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jail = BuildJail(JailPolicy(), scratch=tmp_path, environment=ENVIRONMENT, without=MEANS)
    told = jail.status()
    assert told["means"] == "limits"
    assert "files" in told["missing"]
    assert "does not keep all" in caplog.text
    (tmp_path / "out").mkdir()
    asked = BuildRequest(
        name="m",
        version=1,
        spec={},
        source=ImportSource("m:f"),
        source_dir=tmp_path / "in",
        output_dir=tmp_path / "out",
    )
    builder = Builder(command=(sys.executable, str(DOUBLE), "good"), environment=ENVIRONMENT, jail=jail)
    asyncio.run(builder.build(asked, ignore))
    assert (tmp_path / "out" / "state.json").exists()


def test_a_jail_that_is_turned_off_is_said_to_be(tmp_path: Path) -> None:
    jail = BuildJail(JailPolicy(mode="off"), scratch=tmp_path, environment=ENVIRONMENT)
    assert jail.found() is None
    assert jail.status() == {"mode": "off"}


def test_a_user_who_does_not_exist_or_is_root_builds_nothing(tmp_path: Path) -> None:
    for name in ("no-such-user-here", "root", "0"):
        with pytest.raises(ValueError, match="build_user"):
            BuildJail(JailPolicy(user=name), scratch=tmp_path, environment=ENVIRONMENT)
