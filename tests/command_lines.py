"""Command lines read as the command reads them, and nothing run."""

from __future__ import annotations

from typing import Any

__all__ = ["parse"]


def parse(command: Any, words: list[str], parent: Any = None) -> None:
    """Let a command read its words. Errors: those of the command line.

    A group is known by its commands: typer has classes of its own, which are not click's.
    """
    context = command.make_context(command.name, list(words), parent=parent)
    if hasattr(command, "commands"):
        name, *rest = [*context._protected_args, *context.args]
        assert name in command.commands, f"there is no command {name!r}"
        parse(command.commands[name], rest, context)
