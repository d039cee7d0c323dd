"""Source text in the builder: faults that carry the caller's line, weights without programs in them, hostile texts.

Hostile texts are built by the real worker, in the best jail that this machine has.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import socket
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.build import (
    ArchiveLimits,
    Builder,
    BuildFailed,
    BuildJail,
    BuildLimits,
    BuildRequest,
    BuildTimeout,
    JailIncomplete,
    JailPolicy,
    SourceRefused,
    TextSource,
    builder_environment,
)
from server.build.source import ArchiveSource, source_from_json
from server.build.source_text import function_of_text, read_weights, written
from server.build.supervisor import WORKER_COMMAND
from server.jail import Jail, Means
from tests.build.doubles.builds import ENVIRONMENT, ignore, is_running


def test_a_fault_of_syntax_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(SourceRefused, match=r"source\.py:2: .*never closed: return \("):
        written("def predict(x):\n    return (\n", tmp_path)


@pytest.mark.parametrize("text", ["x = 1\0", "(" * 100_000, "-" * 200_000 + "1"], ids=["nul", "deep", "deeper"])
def test_a_text_that_no_parser_takes_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceRefused, match=r"source\.py"):
        written(text, tmp_path)


def test_a_fault_of_the_module_names_the_last_line_of_the_caller_s(tmp_path: Path) -> None:
    path = written("import json\n\ndef load():\n    return json.loads('{')\n\nload()\n", tmp_path)
    with pytest.raises(SourceRefused, match=r"^source\.py:4: JSONDecodeError"):
        function_of_text(path, "predict", {})


@pytest.mark.parametrize(
    "ending", ["raise SystemExit(0)", "import sys\nsys.exit('bye')", "exit_ = None; raise KeyError(1)"]
)
def test_a_text_that_leaves_is_refused(tmp_path: Path, ending: str) -> None:
    with pytest.raises(SourceRefused, match=r"source\.py:\d: (SystemExit|KeyError)"):
        function_of_text(written(ending, tmp_path), "predict", {})


def test_a_missing_function_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    path = written("def score(x): return x\n", tmp_path)
    with pytest.raises(SourceRefused, match=r"no function 'predict' \(it has score\).*'function'"):
        function_of_text(path, "predict", {})
    assert function_of_text(path, "score", {})[0](7) == 7


def test_weights_come_by_their_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=np.arange(3, dtype=np.float32), b=np.float64(2), text=np.array(["a", "bc"]))
    weights = read_weights(tmp_path / "w.npz")
    assert sorted(weights) == ["b", "text", "w"]
    np.testing.assert_array_equal(weights["w"], np.arange(3, dtype=np.float32))


class Program:
    def __reduce__(self) -> Any:
        return (os.system, ("touch /tmp/rowwise-was-here",))


def test_weights_with_a_program_in_them_are_refused_and_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=np.array([Program()], dtype=object), allow_pickle=True)
    with pytest.raises(SourceRefused, match="no objects"):
        read_weights(tmp_path / "w.npz")
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Program()))
    with pytest.raises(SourceRefused, match=r"can't be read as an \.npz"):
        read_weights(tmp_path / "p.npz")
    assert not Path("/tmp/rowwise-was-here").exists()


def test_weights_that_unpack_to_more_than_the_limit_are_refused_unread(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "w.npz", w=np.zeros(10_000_000, np.uint8))
    assert (tmp_path / "w.npz").stat().st_size < 100_000
    with pytest.raises(SourceRefused, match="over max_unpacked_bytes = 1000000"):
        read_weights(tmp_path / "w.npz", limits=ArchiveLimits(max_unpacked_bytes=1_000_000))


@pytest.mark.parametrize("contents", [b"", b"PK\x03\x04 no zip", b"\x93NUMPY\x01\x00"], ids=["empty", "zip", "npy"])
def test_weights_that_are_no_npz_are_refused(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "w.npz").write_bytes(contents)
    with pytest.raises(SourceRefused, match=r"can't be read as an \.npz"):
        read_weights(tmp_path / "w.npz")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr(
            "w.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (99,), }"
        )
    with pytest.raises(SourceRefused):
        read_weights(tmp_path / "other.npz")


def test_a_text_travels_to_the_builder_and_back() -> None:
    for source in (TextSource("x = 1", "predict"), TextSource("x = 1", "f", Path("/w"))):
        assert source_from_json(json.loads(json.dumps(source.to_json()))) == source


class Building:
    """The real worker, in the best jail there is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "store" / "uploads").mkdir(parents=True)
        (root / "token").write_text("secret")
        (root / "token").chmod(0o644)
        self.jail = BuildJail(
            JailPolicy(hidden=(root / "store", root / "token")),
            scratch=root / "store" / "uploads",
            environment=builder_environment({**os.environ, **ENVIRONMENT}),
        )
        found = self.jail.found()
        assert found is not None
        self.found: Jail = found
        self._n = 0

    def build(self, text: str, **limits: Any) -> None:
        """Build from a text. Errors: those of the build."""
        self._n += 1
        version = self.root / "store" / "models" / "m" / str(self._n)
        for name in ("source", "staging"):
            (version / name).mkdir(parents=True)
        asked = BuildRequest(
            name="m",
            version=self._n,
            spec={"inputs": {"x": {"dtype": "float32", "shape": [2]}}, "buckets": [1]},
            source=TextSource(text, "predict"),
            source_dir=version / "source",
            output_dir=version / "staging",
        )
        chosen = BuildLimits(build_niceness=0, **limits)
        self.jail.change(chosen)
        asyncio.run(Builder(limits=chosen, jail=self.jail).build(asked, ignore))

    def said(self, text: str, **limits: Any) -> str:
        """Build from a text that ends by raising what it found, and return that."""
        with pytest.raises(BuildFailed) as caught:
            self.build(text, **limits)
        return str(caught.value)


@pytest.fixture(scope="module")
def building(tmp_path_factory: pytest.TempPathFactory) -> Building:
    made = Building(tmp_path_factory.mktemp("source"))
    if made.found.broken:
        pytest.skip(f"this machine has no whole jail, without which no source is run: {made.found.broken}")
    return made


LOOKS = """
found = {}
def tried(name, attempt):
    try:
        found[name] = "got " + repr(attempt())
    except BaseException as error:
        found[name] = "refused"

def by_subclasses():
    # What a filter of names in the text would have to find.
    wanted = [each for each in ().__class__.__base__.__subclasses__() if each.__name__ == "_wrap_close"]
    return wanted[0].__init__.__globals__["popen"]("cat %(token)s && echo read").read() or 1 / 0

import os, socket, subprocess
tried("subclasses", by_subclasses)
tried("open", lambda: open("%(token)s").read())
tried("system", lambda: 1 / 0 if os.system("cat %(token)s") else "read")
tried("program", lambda: subprocess.check_output(["cat", "%(token)s"]))
tried("store", lambda: os.listdir("%(store)s/uploads"))
tried("socket", lambda: socket.create_connection(("127.0.0.1", %(port)d), timeout=2))
tried("code", lambda: open("%(code)s", "a"))
tried("kill", lambda: [os.kill(pid, 9) for pid in (%(server)d,)])
raise RuntimeError("found: " + repr(found))
"""


def test_a_text_that_walks_subclasses_and_runs_programs_gets_nothing_by_it(building: Building) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = {
            "token": building.root / "token",
            "store": building.root / "store",
            "code": Path(sys.modules["server"].__file__ or ""),
            "port": listener.getsockname()[1],
            "server": os.getpid(),
        }
        said = building.said(LOOKS % where)
    assert "found: " in said, said
    assert "got" not in said, said
    assert said.count("refused") == 8, said


def test_a_text_that_never_ends_while_it_is_imported_is_ended(building: Building) -> None:
    with pytest.raises(BuildTimeout):
        building.build("while True:\n    pass\n", build_timeout_s=4)


def test_a_text_that_takes_all_memory_while_it_is_imported_is_refused_with_its_line(building: Building) -> None:
    assert "source.py:1: MemoryError" in building.said("x = bytearray(100 * 2**30)\ndef predict(x): return x\n")


def test_threads_and_processes_that_a_text_leaves_behind_are_gone_with_it(building: Building) -> None:
    text = (
        "import subprocess, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "left = subprocess.Popen(['sleep', '987654'], start_new_session=True)\n"
        "raise RuntimeError('left')\n"
    )
    assert "source.py:4: RuntimeError: left" in building.said(text, exit_grace_s=0.2)
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if is_running(int(path.parent.name))]
    assert not [command for command in commands if b"987654" in command]


def test_messages_name_no_directory_of_the_server(building: Building) -> None:
    said = building.said("import os\nraise RuntimeError(__file__)\n")
    assert said == "source.py:2: RuntimeError: source.py"


@pytest.mark.long
def test_a_trace_that_never_ends_is_ended(building: Building) -> None:
    with pytest.raises(BuildTimeout):
        building.build("def predict(x):\n    while True:\n        x = x + 1\n    return x\n", build_timeout_s=60)


def test_source_is_not_run_where_the_jail_is_not_whole_unless_the_operator_says_so(tmp_path: Path) -> None:
    asked = BuildRequest(
        name="m",
        version=1,
        spec={},
        source=TextSource("raise RuntimeError('it ran')\n", "predict"),
        source_dir=tmp_path,
        output_dir=tmp_path,
    )
    without = list(Means)[:3]
    for policy in (JailPolicy(), JailPolicy(mode="off")):
        jail = BuildJail(policy, scratch=tmp_path, environment=ENVIRONMENT, without=without)
        with pytest.raises(JailIncomplete, match="allow_unjailed_source"):
            asyncio.run(Builder(jail=jail).build(asked, ignore))
        with pytest.raises(JailIncomplete, match="upload a SavedModel archive instead"):
            asyncio.run(Builder(jail=jail).check(asked.source))
        asyncio.run(Builder(jail=jail).check(ArchiveSource(tmp_path, "m.zip")))
    jail = BuildJail(
        JailPolicy(mode="off", allows_unjailed_source=True), scratch=tmp_path, environment=builder_environment()
    )
    with pytest.raises(BuildFailed, match="it ran"):
        asyncio.run(Builder(jail=jail, command=WORKER_COMMAND).build(asked, ignore))
