"""One setting of the server as an option of a command, and how a command gets all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

__all__ = ["ServeOption", "with_options"]


@dataclass(frozen=True, slots=True)
class ServeOption:
    """An option without a default of its own: environment, file and ``server.settings`` come after it.

    ``name`` is that of the setting, ``type`` what one value is read as, ``metavar`` its unit or kind in the help.
    """

    name: str
    type: Any
    flag: str
    help: str
    panel: str
    metavar: str | None = None

    def parameter(self) -> inspect.Parameter:
        """Return it as a keyword-only parameter, as typer reads one."""
        option = typer.Option(
            self.flag, help=self.help, rich_help_panel=self.panel, metavar=self.metavar, show_default=False
        )
        annotation: Any = Annotated[self.type | None, option]
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def with_options(function: Callable[..., Any], options: Iterable[ServeOption]) -> Callable[..., Any]:
    """Return a command that has these options besides its own, and gets those that were given, by name, as ``given``.

    Sixty parameters that two functions would have to repeat are a table; typer reads a signature that is made of it.
    """
    entries = {option.name: option.parameter() for option in options}
    own = [each for each in inspect.signature(function, eval_str=True).parameters.values() if each.name != "given"]
    positional = [each for each in own if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    keyword = [each for each in own if each.kind is inspect.Parameter.KEYWORD_ONLY]

    def command(**values: Any) -> Any:
        given = {name: values.pop(name) for name in entries}
        return function(**values, given={name: value for name, value in given.items() if value not in (None, [])})

    parameters = [*positional, *entries.values(), *keyword]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
    return command
