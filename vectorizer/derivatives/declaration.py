"""What a caller asks for: which derivative, of which output, with respect to what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vectorizer.errors import DeclarationError

__all__ = ["COTANGENT", "KINDS", "Derivative"]

#: ``gradient`` and ``hessian`` are of a scalar output, ``jacobian`` and ``vjp`` of any.
KINDS = ("gradient", "hessian", "jacobian", "vjp")
#: The further input of a vector-Jacobian product.
COTANGENT = "cotangent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivative:
    """One derivative of a function of one example.

    ``output`` is the output to differentiate; None: the only one that can be. ``wrt`` names float inputs, variables,
    or both; a variable may be given itself, which is how a plain function's unnamed ones are told apart. A single
    name answers with a bare array, several with a dict; None takes every float input. ``max_parallel`` bounds
    how many elements, rows times elements of the output (of ``wrt`` for a Hessian), are computed at once: the rest
    wait in a loop; None takes as many as fit a quarter of a gigabyte. ``name`` is the key to ask for it by; None
    takes the kind, with output and ``wrt`` where several share it.

    Shapes: with y the output and x each of ``wrt``, a row of gradient and vjp has x's shape, of jacobian
        ``[*y, *x]``, of hessian ``[*x, *x']`` for each pair, named ``x,x'`` if there are several.
    Errors: DeclarationError.
    """

    kind: str
    output: str | None = None
    wrt: Any = None
    max_parallel: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeclarationError(f"derivative: expected a kind of {', '.join(KINDS)}, got {self.kind!r}")
        most = self.max_parallel
        if most is not None and (type(most) is not int or most < 1):
            raise DeclarationError(f"{self.kind}: max_parallel must be a whole number of at least 1, got {most!r}")

    @property
    def wanted(self) -> tuple[Any, ...] | None:
        """What to differentiate by, as it was given; None where nothing was."""
        if self.wrt is None:
            return None
        return tuple(self.wrt) if isinstance(self.wrt, Sequence) and not isinstance(self.wrt, str) else (self.wrt,)
