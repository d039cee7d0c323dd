"""Checks whose faults no test can make: facts in, findings out. And the command that prints them."""

from __future__ import annotations

import json
import resource
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rowwise.cli import app
from rowwise.doctor import Level
from rowwise.doctor.cgroup import CgroupLimits, read_cgroup
from rowwise.doctor.clock import clock_findings
from rowwise.doctor.cores import cores_findings
from rowwise.doctor.disk import disk_findings
from rowwise.doctor.memory import memory_bytes, memory_findings
from rowwise.doctor.processes import processes_finding
from rowwise.doctor.processor import instruction_sets, processor_finding
from rowwise.doctor.python import python_finding
from rowwise.doctor.running import ServerFacts, running_findings
from rowwise.doctor.tensorflow import NEEDED, TensorFlowFacts, tensorflow_findings
from server.settings import Settings
from tests.source_files import ROOT

GIB = 2**30
NOW_S = 1_800_000_000.0


def levels(findings: object) -> list[Level]:
    return [finding.level for finding in findings]  # type: ignore[attr-defined]


def test_the_versions_that_are_asked_for_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"tensorflow>={NEEDED},<2.22" in project["dependencies"]
    assert project["requires-python"] == ">=3.11,<3.12"
    assert python_finding((3, 11, 9), "python").level is Level.FINE
    assert python_finding((3, 12, 0), "python").level is Level.WRONG


@pytest.mark.parametrize(
    ("machine", "flags", "level"),
    [
        ("x86_64", "sse4_2 avx avx2 fma", Level.FINE),
        ("x86_64", "sse4_2 avx", Level.ADVICE),
        ("x86_64", "sse4_2", Level.WRONG),
        ("aarch64", "", Level.FINE),
    ],
)
def test_a_processor_is_judged_by_what_all_of_its_cores_have(machine: str, flags: str, level: Level) -> None:
    cpuinfo = f"processor: 0\nflags\t: {flags} amx_tile\nprocessor: 1\nflags\t: {flags}\n"
    assert instruction_sets(cpuinfo) == set(flags.split())
    assert processor_finding(machine, instruction_sets(cpuinfo)).level is level


def test_limits_of_control_groups_are_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    (group / "cpu.max").write_text("max 100000\n")
    (group / "memory.max").write_text(f"{2 * GIB}\n")
    (tmp_path / "a" / "memory.max").write_text("max\n")
    (group / "pids.max").write_text("100\n")
    assert read_cgroup(tmp_path, "0::/a/b\n") == CgroupLimits(cores=1.5, memory_bytes=2 * GIB, processes=100)
    assert read_cgroup(tmp_path, "0::/elsewhere\n") == CgroupLimits()


def test_control_groups_of_version_1_are_read_too(tmp_path: Path) -> None:
    for name, file, text in (
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("memory", "memory.limit_in_bytes", "9223372036854771712"),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / file).write_text(text)
    assert read_cgroup(tmp_path, "4:memory:/docker/x\n1:cpu,cpuacct:/\n") == CgroupLimits(cores=0.5)
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    assert read_cgroup(tmp_path, "1:cpu:/\n") == CgroupLimits()


def test_a_quota_below_the_cores_is_advised_against() -> None:
    assert levels(cores_findings(Settings(), n_cores=8, quota_cores=2.0)) == [Level.ADVICE]
    assert levels(cores_findings(Settings(), n_cores=8, quota_cores=None)) == [Level.FINE]
    assert levels(cores_findings(Settings(http_workers=3), n_cores=4, quota_cores=None)) == [Level.FINE]


def test_memory_is_that_of_the_machine_or_of_its_control_group() -> None:
    assert memory_bytes("MemFree: 1 kB\nMemTotal:  2048 kB\n") == 2 * 2**20
    unlimited = resource.RLIM_INFINITY
    for total, cgroup, level in ((32, None, Level.FINE), (32, 4, Level.ADVICE), (32, 1, Level.WRONG)):
        found = memory_findings(
            Settings(),
            total_bytes=total * GIB,
            cgroup_bytes=None if cgroup is None else cgroup * GIB,
            address_space_bytes=unlimited,
        )
        assert levels(found) == [level]


def test_root_is_held_to_its_control_group_alone() -> None:
    def found(uid: int, cgroup: int | None) -> Level:
        return processes_finding(uid=uid, limit=100, n_running=10, n_cores=2, cgroup_processes=cgroup).level

    assert (found(0, None), found(1_000, None), found(0, 100)) == (Level.FINE, Level.WRONG, Level.WRONG)


def test_space_is_measured_against_what_may_be_uploaded(tmp_path: Path) -> None:
    for free, level in ((100 * GIB, Level.FINE), (GIB, Level.ADVICE), (GIB // 8, Level.WRONG)):
        found = disk_findings(Settings(store=tmp_path), temporary=str(tmp_path), free=lambda path, free=free: free)
        assert next(each for each in found if each.check == "store").level is level


def test_a_clock_before_this_was_written_and_a_kernel_without_random_numbers() -> None:
    assert levels(clock_findings(now_s=NOW_S)) == [Level.FINE]
    assert levels(clock_findings(now_s=0.0, entropy=lambda: False)) == [Level.WRONG, Level.WRONG]


def test_accelerators_that_tensorflow_does_not_see() -> None:
    def found(*devices: str, n_nodes: int) -> Level:
        facts = TensorFlowFacts(version=f"{NEEDED}.0", accelerators=devices, computes=True)
        return list(tensorflow_findings(facts, n_device_nodes=n_nodes))[-1].level

    assert found("GPU:0", n_nodes=3) is Level.FINE
    assert found(n_nodes=3) is Level.ADVICE
    assert found(n_nodes=0) is Level.FINE


def test_a_running_server_is_asked_for_its_clock_and_its_failures() -> None:
    failed = {"model": "a", "version": 1, "state": "FAILED", "reason": "op Unique"}
    facts = ServerFacts(status=200, ready={"ready": True}, at_s=NOW_S + 90, models=[failed], models_status=200)
    found = [each for each in running_findings("http://here", facts, now_s=NOW_S) if each.level is Level.ADVICE]
    assert [each.check for each in found] == ["server", "clock"]
    assert "op Unique" in found[0].what
    assert "+90 s" in found[1].what
    shut = ServerFacts(status=200, ready={"ready": True}, models_status=403)
    assert "ROWWISE_TOKEN" in list(running_findings("http://here", shut, now_s=NOW_S))[-1].to_do


def test_the_command_ends_with_1_where_something_is_wrong(tmp_path: Path) -> None:
    given = ["doctor", "--quick", "--store", str(tmp_path / "store"), "--port", "0", "--grpc-port", "0"]
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})

    sound = runner.invoke(app, [*given, "--json"])
    assert (sound.exit_code, json.loads(sound.stdout)["ok"]) == (0, True)
    (tmp_path / "store").write_text("a file")
    failing = runner.invoke(app, given)
    assert failing.exit_code == 1
    assert "WRONG  store: the store is to be" in failing.stdout
    assert "do  name another --store" in failing.stdout
    told = json.loads(runner.invoke(app, [*given, "--json"]).stdout)
    assert not told["ok"]
    assert next(each["check"] for each in told["findings"] if each["level"] == "wrong") == "store"
