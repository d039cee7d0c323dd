"""A declared derivative against the function that it is of: names become outputs, inputs and variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from vectorizer.derivatives.declaration import COTANGENT, Derivative
from vectorizer.errors import DeclarationError
from vectorizer.lengths import Axis
from vectorizer.trace import ExampleFunction
from vectorizer.vectorized import Output

#: A name is a key, a file's part and a label: variables are called after their layers, with slashes.
_PUNCTUATION = re.compile(r"[^A-Za-z0-9_]")

__all__ = ["Choice", "Source", "choose", "parameters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is differentiated by: an input, or a variable. A dimension is a size, or the length axis it follows."""

    name: str
    dtype: tf.DType
    dims: tuple[int | Axis, ...]
    variable: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A derivative whose names have been found. ``bare`` says that its one result goes without a name."""

    name: str
    kind: str
    output: Output
    output_index: int
    sources: tuple[Source, ...]
    max_parallel: int | None
    bare: bool

    @property
    def results(self) -> tuple[Output, ...]:
        """What one row of it is."""
        sources = self.sources
        if self.kind == "hessian":
            return tuple(
                Output(
                    name=a.name if len(sources) == 1 else f"{a.name},{b.name}", dtype=b.dtype, dims=(*a.dims, *b.dims)
                )
                for a in sources
                for b in sources
            )
        before = self.output.dims if self.kind == "jacobian" else ()
        return tuple(Output(name=s.name, dtype=s.dtype, dims=(*before, *s.dims)) for s in sources)


def choose(
    derivatives: Sequence[Derivative], function: ExampleFunction, axes: Sequence[Axis], outputs: Sequence[Output]
) -> tuple[Choice, ...]:
    """Find what each derivative is of and by, and give each a name.

    Errors: DeclarationError, saying what there is, if a choice is missing, unknown or can't be differentiated.
    """
    for derivative in derivatives:
        if not isinstance(derivative, Derivative):
            raise DeclarationError(
                f"derivatives: expected Derivative(kind=...) objects, got {type(derivative).__name__}"
            )
    choices = [_choose(derivative, function, axes, outputs) for derivative in derivatives]
    named = _named(choices)
    repeated = [name for name, count in Counter(choice.name for choice in named).items() if count > 1]
    if repeated:
        raise DeclarationError(f"{function.name}: several derivatives are called {repeated[0]!r}; give them names")
    return named


def parameters(function: ExampleFunction) -> dict[str, Any]:
    """Return the variables that a function reads by name; where several share one, the later are numbered."""
    named: dict[str, Any] = {}
    for variable in function.variables:
        base = variable.name.removesuffix(":0")
        number = 0
        name = base
        while name in named:
            number += 1
            name = f"{base}_{number}"
        named[name] = variable
    return named


def _choose(
    derivative: Derivative, function: ExampleFunction, axes: Sequence[Axis], outputs: Sequence[Output]
) -> Choice:
    where = f"{function.name}: {derivative.kind}"
    index = _output_index(derivative, outputs, where)
    if None in outputs[index].dims:
        raise DeclarationError(
            f"{where}: the size of output {outputs[index].name!r} depends on the example; reduce it, or cut or pad it "
            "to a fixed size"
        )
    inputs = _input_sources(function, axes)
    if derivative.kind == "vjp" and COTANGENT in function.inputs:
        raise DeclarationError(f"{where}: the function's own input {COTANGENT!r} is in the way; rename it")
    wanted = derivative.wanted
    if wanted is None:
        sources = tuple(source for source in inputs.values() if source.dtype.is_floating)
        if not sources:
            raise DeclarationError(f"{where}: {_what_there_is(function, inputs, 'none of the inputs is a float')}")
    else:
        sources = tuple(_source(name, function, inputs, where) for name in wanted)
    if not sources or len({source.name for source in sources}) < len(sources):
        raise DeclarationError(f"{where}: wrt must name each input or variable once, got {derivative.wrt!r}")
    return Choice(
        name=derivative.name or "",
        kind=derivative.kind,
        output=outputs[index],
        output_index=index,
        sources=sources,
        max_parallel=derivative.max_parallel,
        bare=len(sources) == 1 and (wanted is None or isinstance(derivative.wrt, str) or derivative.wrt is wanted[0]),
    )


def _output_index(derivative: Derivative, outputs: Sequence[Output], where: str) -> int:
    scalar = derivative.kind in ("gradient", "hessian")
    # A result whose size differs from row to row has no elements that could be counted beforehand.
    able = [
        output
        for output in outputs
        if output.dtype.is_floating and None not in output.dims and not (scalar and output.dims)
    ]
    kind_of = "scalar float outputs" if scalar else "float outputs"
    there = f"{kind_of}: {', '.join(output.name for output in able) or 'none'}"
    instead = "; for one with dimensions ask for the jacobian, or return a loss" if scalar else ""
    names = [output.name for output in outputs]
    if derivative.output is None:
        if len(able) != 1:
            raise DeclarationError(f"{where}: say which output (output=...); {there}{instead}")
        return names.index(able[0].name)
    if derivative.output not in names:
        raise DeclarationError(f"{where}: there is no output {derivative.output!r}; {there}")
    if derivative.output not in [output.name for output in able]:
        output = outputs[names.index(derivative.output)]
        dims = [dim.name if isinstance(dim, Axis) else "differs" if dim is None else dim for dim in output.dims]
        raise DeclarationError(f"{where}: output {output.name!r} is {output.dtype.name}{dims}; {there}{instead}")
    return names.index(derivative.output)


def _input_sources(function: ExampleFunction, axes: Sequence[Axis]) -> dict[str, Source]:
    following = {dim: axis for axis in axes for dim in axis.dims}
    return {
        name: Source(
            name=name,
            dtype=spec.dtype,
            dims=tuple(following[name, dim] if size is None else size for dim, size in enumerate(spec.shape)),
        )
        for name, spec in function.inputs.items()
    }


def _source(wanted: Any, function: ExampleFunction, inputs: Mapping[str, Source], where: str) -> Source:
    variables = parameters(function)
    if isinstance(wanted, str):
        plain = wanted.removesuffix(":0")
        found = inputs.get(wanted) or _of_variable(plain, variables.get(plain))
    else:
        found = next((_of_variable(name, known) for name, known in variables.items() if known is wanted), None)
    shown = repr(wanted) if isinstance(wanted, str) else f"the {type(wanted).__name__} {getattr(wanted, 'name', '')!r}"
    if found is None:
        raise DeclarationError(f"{where}: {_what_there_is(function, inputs, f'there is no {shown}')}")
    if not found.dtype.is_floating:
        raise DeclarationError(
            f"{where}: {_what_there_is(function, inputs, f'{found.name!r} is {found.dtype.name}, not a float')}"
        )
    return found


def _of_variable(name: str, variable: Any) -> Source | None:
    if variable is None:
        return None
    return Source(name=name, dtype=variable.dtype, dims=tuple(variable.shape.as_list()), variable=variable)


def _what_there_is(function: ExampleFunction, inputs: Mapping[str, Source], problem: str) -> str:
    able = [source.name for source in inputs.values() if source.dtype.is_floating]
    variables = [name for name, variable in parameters(function).items() if variable.dtype.is_floating]
    return (
        f"{problem}; it can be differentiated by the inputs {', '.join(able) or '(none)'} "
        f"and the variables {', '.join(variables[:20]) or '(none)'}{', ...' if len(variables) > 20 else ''}"
    )


def _named(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Name each by its kind, and by output and sources as far as others of the kind make it necessary."""

    def names(choice: Choice) -> tuple[str, ...]:
        of = f"{choice.kind}_{choice.output.name}"
        return choice.kind, of, _PUNCTUATION.sub("_", "_".join((of, *(source.name for source in choice.sources))))

    named = []
    for choice in choices:
        alike = [names(other) for other in choices if other.kind == choice.kind and not other.name]
        own = names(choice)
        level = next((at for at in range(2) if [each[at] for each in alike].count(own[at]) == 1), 2)
        # Where the shortest name would do for one of several, all of them take the longer one.
        if len(alike) > 1:
            level = max(level, next((at for at in (1, 2) if len({each[at] for each in alike}) == len(alike)), 2))
        named.append(choice if choice.name else replace(choice, name=own[level]))
    return tuple(named)
