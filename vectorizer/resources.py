"""What a function refers to that has to be saved with it: modules, layers, lookup tables, variables.

A traced graph holds variables and tables by handle only, and a table has no way back from its handle. So they are found
by following what the function's code refers to: closures, globals, defaults, attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import tensorflow as tf

__all__ = ["resources_of"]

#: Largest nesting of containers and functions in which resources are looked for.
_MAX_DEPTH = 8

_Trackable = tf.__internal__.tracking.AutoTrackable


def resources_of(target: Any) -> list[Any]:
    """Return the trackable objects that ``target`` is or refers to: modules, layers, lookup tables, variables."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    waiting = [(target, 0)]
    while waiting:
        value, depth = waiting.pop()
        if id(value) in seen or depth > _MAX_DEPTH:
            continue
        seen.add(id(value))
        if isinstance(value, (_Trackable, tf.Variable, tf.saved_model.experimental.TrackableResource)):
            found[id(value)] = value
        else:
            waiting.extend((each, depth + 1) for each in _referred(value))
    return list(found.values())


def _referred(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, FunctionType):
        yield from _referred_by_function(value)
    elif hasattr(value, "python_function"):
        yield value.python_function
    elif callable(value) and not isinstance(value, type):
        yield getattr(type(value), "__call__", None)  # noqa: B004 - its code is wanted, not whether it has one
        yield getattr(value, "__dict__", {})


def _referred_by_function(function: FunctionType) -> Iterator[Any]:
    yield from (function.__defaults__ or (), function.__kwdefaults__ or {})
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # a name that was never assigned
    names = set(_names(function.__code__))
    for name in names & set(function.__globals__):
        value = function.__globals__[name]
        if not isinstance(value, ModuleType):
            yield value
        elif not value.__name__.startswith("tensorflow"):
            yield from (vars(value)[each] for each in names & set(vars(value)))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
