"""Which pages' blocks a test runs, and how: in their order, in one directory, with one set of names."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.manual.blocks import Block, Command, blocks
from tests.source_files import ROOT

__all__ = ["RUN_BESIDE_A_SERVER", "RUN_IN_PROCESS", "Reader"]

#: Pages whose Python needs no server, or one whose models are scripted.
RUN_IN_PROCESS = (
    "docs/client.md",
    "docs/converters.md",
    "docs/exporting.md",
    "docs/per_example_models.md",
    "docs/tf_data.md",
)
#: Pages whose commands are typed, and whose Python is run, beside a server.
RUN_BESIDE_A_SERVER = (
    "README.md",
    "docs/batching.md",
    "docs/command.md",
    "docs/derivatives.md",
    "docs/grpc.md",
    "docs/http_api.md",
    "docs/open_inference.md",
    "docs/operating.md",
    "docs/rights.md",
    "docs/tutorial.md",
    # Adds a token to those that the page on rights lists.
    "docs/observing.md",
)
_HTTP = re.compile(r"\b(?:127\.0\.0\.1|localhost):8000\b")
_GRPC = re.compile(r"\b(?:127\.0\.0\.1|localhost):8001\b")


#: What stands between the commands of a block in what its shell prints, with the exit code of the one before.
_END = "\x1e"
_ENDED = re.compile(f"{_END}(\\d+)\\n")


@dataclass
class Reader:
    """Someone who works through pages in ``directory``.

    The server is at ``http`` and ``grpc`` instead of the usual ports. ``names`` are those of the Python blocks.
    """

    directory: Path
    http: str = "127.0.0.1:8000"
    grpc: str = "127.0.0.1:8001"
    names: dict[str, Any] = field(default_factory=dict)

    def work_through(self, page: str) -> None:
        """Run the blocks of a page."""
        for number, block in enumerate(blocks(page)):
            if block.is_run and block.language == "console":
                self._type(block)
            elif block.is_run:
                self._run(block, name=f"{Path(page).stem}_{number}.py")

    def _run(self, block: Block, *, name: str) -> None:
        """Run Python from a file, as autograph reads a function's source; what is to be a file is only written."""
        named = re.match(r"# (\S+\.py)\n", block.text)
        path = self.directory / (named[1] if named else name)
        path.write_text(self._here(block.text))
        if not named:
            exec(compile(path.read_text(), str(path), "exec"), self.names)

    def _type(self, block: Block) -> None:
        """Run a block's commands in one shell, and compare what each prints with the page."""
        commands = [command for command in block.commands() if not command.is_read_only]
        script = "\n".join(f"{self._here(command.line)}\nprintf '{_END}%d\\n' $?" for command in commands)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "ROWWISE_URL": f"http://{self.http}",
            "COLUMNS": "200",
        }
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", script],
            check=False,
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=300,
        )
        parts = _ENDED.split(ended.stdout)
        assert len(parts) == 2 * len(commands) + 1, f"{block}: {ended}"
        for command, printed, code in zip(commands, parts[::2], parts[1::2], strict=False):
            assert code == "0", f"{block}: {command.line} ended with {code}: {printed}\n{ended.stderr}"
            if command.printed:
                _compare(command, printed, block)

    def _here(self, text: str) -> str:
        return _GRPC.sub(self.grpc, _HTTP.sub(self.http, text))


def _compare(command: Command, printed: str, block: Block) -> None:
    """``...`` on the page is anything; spaces, line ends and the order of named things do not matter."""
    difference = "\n".join(difflib.ndiff([command.printed], [printed]))
    said = f"{block}: {command.line} does not print what the page says:\n{difference}"
    try:
        expected, got = json.loads(command.printed), json.loads(printed)
    except ValueError:
        pattern = ".*".join(re.escape(part) for part in "".join(command.printed.split()).split("..."))
        assert re.fullmatch(pattern, "".join(printed.split())), said
    else:
        assert _in_order(got) == _in_order(expected), said


def _in_order(value: Any) -> Any:
    """Tensors of an answer have names, and come in an order that TensorFlow chose."""
    if isinstance(value, dict):
        return {key: _in_order(each) for key, each in value.items()}
    if isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value):
        return sorted(value, key=lambda each: str(each["name"]))
    return value
