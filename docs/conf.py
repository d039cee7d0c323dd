"""Configuration of the manual; its directive reads from the server what it can be told."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

project = "Rowwise"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
autodoc_typehints = "signature"
autodoc_member_order = "groupwise"
exclude_patterns = ["_build", "measured"]
html_theme = "furo"
html_title = "Rowwise"
html_show_copyright = False
html_show_sphinx = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Lexers know JSON with "..." in it as an error, which is how a manual shortens it.
suppress_warnings = ["misc.highlighting_failure"]


def settings() -> list[tuple[str, str, str]]:
    """Return (name, what is known of its values, meaning) of each field: the meaning is the ``#:`` comment above it."""
    from server.settings import CHANGEABLE, Settings

    path = ROOT / "server" / "settings.py"
    lines = path.read_text().splitlines()
    tree = ast.parse("\n".join(lines))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings").body
    found = []
    for node in body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            continue
        name = node.target.id
        if name.startswith("_"):
            continue
        comment: list[str] = []
        for line in reversed(lines[: node.lineno - 1]):
            if not line.strip().startswith("#:"):
                break
            comment.insert(0, line.strip().removeprefix("#:").strip())
        if not comment:
            raise ValueError(f"{path}: {name} has no '#:' comment that says what it means")
        default = re.sub(r"^Path\((.*)\)$", r"\1", ast.unparse(node.value).replace(" * _MIB", " MiB"))
        values = [f"`ROWWISE_{name.upper()}`", f"default `{default}`", *bounds(Settings.model_fields[name])]
        values += ["changes on SIGHUP"] if name in CHANGEABLE else []
        found.append((name, ", ".join(values), " ".join(comment)))
    return found


def bounds(field: Any) -> list[str]:
    """Return the values that a setting may have, where they are bounded."""
    limits = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}"}
    said = [
        text.format(f"`{getattr(bound, name):,}`")
        for bound in field.metadata
        for name, text in limits.items()
        if getattr(bound, name, None) is not None
    ]
    options = [str(option) for option in get_args(field.annotation) if isinstance(option, str)]
    return said + ([f"one of `{'`, `'.join(options)}`"] if get_origin(field.annotation) is Literal else [])


class SettingsTable(SphinxDirective):
    """``{settings-table}``: one definition for each setting."""

    def run(self) -> list[nodes.Node]:
        """Return the table as nodes."""
        self.env.note_dependency(str(ROOT / "server" / "settings.py"))
        text = StringList()
        for name, values, meaning in settings():
            text.append(f"`{name}` ({values})", "settings")
            text.append(f": {meaning}", "settings")
            text.append("", "settings")
        node = nodes.Element()
        self.state.nested_parse(text, 0, node)
        return node.children


def as_fields(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Let the parts of a docstring (``Shapes:``, ``Errors:``) be fields, with what is indented below them."""
    fields: list[str] = []
    for line in lines:
        part = re.match(r"(Shapes|Units|Errors|Source): ", line)
        if part and fields and fields[-1] and not fields[-1].startswith((":", " ")):
            fields.append("")
        fields.append(f":{part[1]}: {line[part.end() :]}" if part else line)
    lines[:] = fields


class CommandReference(SphinxDirective):
    """``{command-reference}``: usage, help, examples and options of every command."""

    def run(self) -> list[nodes.Node]:
        """Return what the commands themselves say as nodes."""
        sys.path.insert(0, str(ROOT))
        from scripts import command_reference

        for path in (ROOT / "rowwise" / "cli").rglob("*.py"):
            self.env.note_dependency(str(path))
        lines = command_reference.exit_code_lines() if self.name == "exit-codes" else command_reference.command_lines()
        text = StringList()
        for line in lines:
            text.append(line, "commands")
        node = nodes.Element()
        self.state.nested_parse(text, 0, node)
        return node.children


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("settings-table", SettingsTable)
    app.connect("autodoc-process-docstring", as_fields)
    app.add_directive("command-reference", CommandReference)
    app.add_directive("exit-codes", CommandReference)
    return {"parallel_read_safe": True}
