"""Which dimensions of the outputs vary, and with what."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vectorizer.differing import length_name
from vectorizer.errors import DeclarationError
from vectorizer.lengths import Axis
from vectorizer.probes import Probe
from vectorizer.trace import ExampleFunction
from vectorizer.vectorized import Output

__all__ = ["output_dims"]


def output_dims(
    function: ExampleFunction, axes: Sequence[Axis], probes: Sequence[Probe], *, told: Collection[str] = ()
) -> tuple[Output, ...]:
    """Find out which dimension of each output follows which length axis, from the answers to the probes.

    ``told`` are the outputs of the batched graphs: where they have the lengths of a dimension, it needs no axis.

    Errors: DeclarationError if a size differs between examples and follows no declared length.
    """
    outputs = []
    for index, name in enumerate(function.output_names):
        answers = [probe.answers[index] for probe in probes]
        ranks = {answer.ndim for answer in answers}
        if len(ranks) > 1:
            raise DeclarationError(f"{function.name}: output {name!r} has {sorted(ranks)} dimensions, one is expected")
        dims: list[int | Axis | None] = []
        static = function.concrete.outputs[index].shape
        for dim in range(ranks.pop()):
            if length_name(name, dim) in told:
                dims.append(None)
                continue
            if static.rank is not None and static[dim] is not None:
                dims.append(static[dim])
                continue
            sizes = [answer.shape[dim] for answer in answers]
            following = [
                axis
                for position, axis in enumerate(axes)
                if all(size == probe.lengths[position] for size, probe in zip(sizes, probes, strict=True))
            ]
            if len(set(sizes)) == 1 and not following:
                dims.append(sizes[0])
            elif len(following) > 1:
                raise DeclarationError(
                    f"{function.name}: dimension {dim} of output {name!r} could follow "
                    f"{' or '.join(repr(axis.name) for axis in following)}; give examples in which they differ"
                )
            elif following:
                dims.append(following[0])
            else:
                raise DeclarationError(
                    f"{function.name}: dimension {dim} of output {name!r} has sizes {sorted(set(sizes))[:5]} for "
                    "different examples and follows no declared length; return a fixed size and a count beside it"
                )
        outputs.append(Output(name=name, dtype=function.concrete.outputs[index].dtype, dims=tuple(dims)))
    return tuple(outputs)
