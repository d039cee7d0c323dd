"""The code blocks of the README and the manual, and what a reader would do with them.

A block is run by a test, in the order of its page, unless a comment stands before it: ``<!-- not run: REASON -->``.
Then only its form is checked. Blocks without a language, and those of the language ``text``, show what is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.source_files import ROOT

__all__ = ["PAGES", "Block", "Command", "blocks"]

PAGES = tuple(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
)
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?^```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
#: What takes long, never ends, or makes what a test has already: other tests run it.
_READ_ONLY = re.compile(r"make\b|rowwise serve\b|\. |(\.venv/bin/)?(python|locust)\b|scripts/|export ")


@dataclass(frozen=True)
class Command:
    """A line that a reader types, with the lines that continue it, and what the page says that it prints."""

    line: str
    printed: str

    @property
    def is_read_only(self) -> bool:
        """Whether no test of the manual runs it, but only reads it."""
        return _READ_ONLY.match(self.line) is not None


@dataclass(frozen=True)
class Block:
    """One block; ``not_run`` is the reason why no test runs it."""

    page: str
    n_line: int
    language: str
    text: str
    not_run: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.n_line}"

    @property
    def is_run(self) -> bool:
        """Whether it is to be run on its page."""
        if self.not_run is not None or self.language not in ("console", "python"):
            return False
        return self.language == "python" or not all(command.is_read_only for command in self.commands())

    def commands(self) -> Iterator[Command]:
        """The commands of a console block. A command goes on while a line ends in a backslash or a quote is open."""
        lines = self.text.splitlines()
        at = 0
        while at < len(lines):
            assert lines[at].startswith("$ "), f"{self}: what the page says is printed has no command: {lines[at]}"
            typed = [lines[at].removeprefix("$ ")]
            at += 1
            while at < len(lines) and (typed[-1].endswith("\\") or "\n".join(typed).count("'") % 2):
                typed.append(lines[at].removeprefix("> "))
                at += 1
            printed = []
            while at < len(lines) and not lines[at].startswith("$ "):
                printed.append(lines[at])
                at += 1
            yield Command("\n".join(typed), "\n".join(printed))


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """Return the blocks of a page that a reader would run or send: not Sphinx's directives, nor what is printed."""
    text = (ROOT / page).read_text()
    found = []
    for match in _BLOCK.finditer(text):
        language = match["language"]
        if language in ("", "text") or language.startswith("{"):
            continue
        n_line = text.count("\n", 0, match.start("text"))
        found.append(Block(page, n_line, language, match["text"], match["why"]))
    return tuple(found)
