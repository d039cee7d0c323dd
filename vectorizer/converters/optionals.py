"""Optional values, in which a branch leaves for its gradient what only it has computed.

They hold the values as they are. Whether there is one is never asked: only the gradient of the branch that made it
reads it, and where rows took different branches, that gradient's results are chosen from row by row.
"""

from __future__ import annotations

from typing import Any

from vectorizer._pfor import Converter, list_content, wrap_list
from vectorizer.converters.contents import Optional
from vectorizer.converters.known import known_value

__all__ = ["CONVERTERS"]


def _from_value(pfor_input: Any) -> Any:
    return wrap_list(Optional(tuple(known_value(value) for value in pfor_input.inputs)))


def _none(_pfor_input: Any) -> Any:
    return wrap_list(Optional(None))


def _value(pfor_input: Any) -> Any:
    content = list_content(known_value(pfor_input.inputs[0]))
    if not isinstance(content, Optional) or content.values is None:
        raise NotImplementedError("it reads an optional value that no branch leaves")
    return list(content.values)


CONVERTERS: dict[str, Converter] = {"OptionalFromValue": _from_value, "OptionalGetValue": _value, "OptionalNone": _none}
