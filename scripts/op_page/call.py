"""One probe call of an op: valid operands, and which of them are examples' own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import op_definition

__all__ = ["Call", "Each", "call", "generic_call", "ints", "reals"]

#: What a generic operand is, of the types that an op takes.
_PREFERRED = (tf.float32, tf.complex64, tf.int32, tf.int64, tf.bool, tf.string, tf.uint8)
_GENERIC_SHAPE = (2, 3)


@dataclass(frozen=True, eq=False)
class Each:
    """An operand that every example has its own of."""

    values: np.ndarray
    dtype: tf.DType | None = None
    #: True: it never differs from row to row while the others don't.
    goes_along: bool = False


@dataclass(frozen=True, eq=False)
class Call:
    """An op with its operands (``Each``, or an array: a parameter, which all examples share) and attributes."""

    op: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    #: Instead of the op by itself: what leads to it, of the operands.
    build: Callable[..., Any] | None = None

    def leaves(self) -> list[tuple[str, Any]]:
        """Return the operands by name; those of a list of operands one by one."""
        names = _input_names(self.op)
        if self.build is not None:
            names = [f"operand {index}" for index in range(len(self.operands))]
        flat: list[tuple[str, Any]] = []
        for name, value in zip(names, self.operands, strict=True):
            if isinstance(value, list):
                flat += [(f"{name}[{index}]", one) for index, one in enumerate(value)]
            else:
                flat.append((name, value))
        return flat

    def outputs(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Make the op, of one tensor for each leaf."""
        given, rest = [], list(tensors)
        for value in self.operands:
            if isinstance(value, list):
                given.append([rest.pop(0) for _ in value])
            else:
                given.append(rest.pop(0))
        if self.build is not None:
            made = self.build(*given)
        else:
            names = _input_names(self.op)
            made = getattr(tf.raw_ops, self.op)(**dict(zip(names, given, strict=True)), **self.attributes)
        return [one for one in tf.nest.flatten(made) if isinstance(one, tf.Tensor)]


def _input_names(op: str) -> list[str]:
    """Return what ``tf.raw_ops`` calls the operands; the definition may have other names."""
    defined = [arg.name for arg in op_definition(op).input_arg]
    public = list(inspect.signature(getattr(tf.raw_ops, op)).parameters)
    renamed = iter(name for name in public if name not in defined)
    return [name if name in public else next(renamed) for name in defined]


def reals(*shape: int, dtype: Any = np.float32, low: float = 0.1, high: float = 0.9) -> Each:
    """Return an operand of numbers between ``low`` and ``high``, no two alike."""
    n = int(np.prod(shape))
    values = np.linspace(low, high, n) if n > 1 else np.full(n, low)
    # Not sorted: neighbours are far apart.
    return Each(values[np.argsort(np.arange(n) * 7 % max(n, 1), kind="stable")].reshape(shape).astype(dtype))


def ints(*shape: int, below: int = 5, dtype: Any = np.int32) -> Each:
    """Return an operand of whole numbers from 0."""
    return Each((np.arange(int(np.prod(shape))) % below).reshape(shape).astype(dtype))


def call(*operands: Any, build: Callable[..., Any] | None = None, **attributes: Any) -> Callable[[str], Call]:
    """Return what makes the call, given the op's name."""
    return lambda op: Call(op, _typed(op, operands, is_built=build is not None), attributes, build)


def _typed(op: str, operands: Sequence[Any], *, is_built: bool) -> tuple[Any, ...]:
    """Give parameters the type that the op wants; where it takes several, whole numbers are int32."""
    fixed = [tf.as_dtype(arg.type) if arg.type else None for arg in op_definition(op).input_arg]
    wanted = [None] * len(operands) if is_built else fixed

    def array(value: Any, dtype: tf.DType | None) -> Any:
        if isinstance(value, list):
            return [array(one, dtype) for one in value]
        if isinstance(value, Each):
            return value
        given = np.asarray(value)
        if dtype is None and not isinstance(value, np.ndarray | np.generic):
            return given.astype({"i": np.int32, "f": np.float32}.get(given.dtype.kind, given.dtype))
        return given if dtype in (None, tf.string) else given.astype(dtype.as_numpy_dtype)

    return tuple(array(value, dtype) for value, dtype in zip(operands, wanted, strict=True))


def generic_call(op: str) -> Call:
    """Return a call with one operand of a few numbers for each of the op's; elementwise ops take them."""
    definition = op_definition(op)
    types = {attr.name: list(attr.allowed_values.list.type) for attr in definition.attr if attr.type == "type"}
    operands: list[Any] = []
    for arg in definition.input_arg:
        allowed = [tf.as_dtype(arg.type)] if arg.type else [tf.as_dtype(one) for one in types.get(arg.type_attr, [])]
        dtype = next((one for one in _PREFERRED if not allowed or one in allowed), allowed[0] if allowed else None)
        operands.append(_of_type(dtype))
        if arg.number_attr:
            operands[-1] = [operands[-1], _of_type(dtype)]
    return Call(op, tuple(operands))


def _of_type(dtype: tf.DType) -> Each:
    if dtype == tf.string:
        return Each(np.array([["1", "2", "3"], ["4", "5", "6"]], object), tf.string)
    if dtype == tf.bool:
        return Each(np.array([[True, False, True], [False, True, False]]))
    values = reals(*_GENERIC_SHAPE).values
    return Each((values if dtype.is_floating or dtype.is_complex else values * 10).astype(dtype.as_numpy_dtype))
