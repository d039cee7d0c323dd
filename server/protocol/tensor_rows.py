"""Whole columns to rows and back: what the formats that speak of tensors have in common, whatever their bytes.

A request's tensor has shape ``[n, *shape]``: its first dimension counts examples. All examples of one tensor have the
same length where an axis varies, and an answer is a tensor only if its rows have one shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from server.protocol.by_signature import BySignature
from server.protocol.dtypes import numpy_dtype, shape_text
from server.protocol.errors import EmptyRequest, RaggedOutput, TooManyInstances, WrongDtype, WrongKeys, WrongShape
from server.protocol.rows import Array, Column, Rows
from server.protocol.seeds import fresh_seeds
from server.signature import ModelSignature, TensorSignature

__all__ = ["batch_shape", "read_tensors", "selected_outputs", "stacked"]


#: Forms of requests that are kept for each signature. They differ by the number of rows and by lengths.
_MAX_FORMS = 256


@dataclass(frozen=True, slots=True)
class _Form:
    """What is known of tensors by their names, dtypes and shapes, once they were checked."""

    n: int
    lengths: tuple[int, ...] | None
    is_bare: bool


class _Forms:
    """The forms of requests to one signature that were checked before."""

    __slots__ = ("known", "signature")

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature
        self.known: dict[tuple[object, ...], _Form] = {}


_FORMS = BySignature(_Forms)


def read_tensors(
    tensors: Mapping[str, Array],
    signature: ModelSignature,
    *,
    max_instances: int,
    words: Mapping[str, str],
    takes_bare: bool = False,
) -> tuple[Rows, bool]:
    """Check tensors against the signature; return them as rows, and whether they were one bare example.

    What was checked once is known by its form: names, dtypes and shapes.
    Shapes: each array ``[n, *shape]``, or where ``takes_bare`` all of them ``[*shape]``: one example without the
        dimension of examples, whose answer has none either. ``words`` are the format's names of dtypes, for sentences.
    Errors: WrongKeys, WrongDtype, WrongShape, EmptyRequest, TooManyInstances.
    """
    known = _FORMS.of(signature).known
    key = (takes_bare, *[(name, array.dtype, array.shape) for name, array in tensors.items()])
    form = known.get(key)
    if form is None or form.n > max_instances:
        form = _checked(tensors, signature, max_instances=max_instances, words=words, takes_bare=takes_bare)
        if len(known) >= _MAX_FORMS:
            known.clear()
        known[key] = form
    n = form.n
    columns: list[Column] = []
    for tensor in signature.inputs:
        array = tensors.get(tensor.name)
        if array is None:
            columns.append(fresh_seeds(n))
            continue
        if form.is_bare:
            array = array[None]
        columns.append(array if tensor.is_fixed else list(array))
    return Rows(n, tuple(columns), None if form.lengths is None else [form.lengths] * n), form.is_bare


def _checked(
    tensors: Mapping[str, Array],
    signature: ModelSignature,
    *,
    max_instances: int,
    words: Mapping[str, str],
    takes_bare: bool,
) -> _Form:
    """Check tensors against the signature.

    Errors: see ``read_tensors``.
    """
    if len(tensors) != len(signature.inputs):
        _check_names(tensors, signature)
    is_bare = takes_bare and all(
        tensor.name not in tensors or tensors[tensor.name].ndim == len(tensor.shape) for tensor in signature.inputs
    )
    n = -1
    first = ""
    lengths: dict[str, tuple[int, str]] = {}
    for tensor in signature.inputs:
        name = tensor.name
        array = tensors.get(name)
        if array is None:
            _check_names(tensors, signature)
            continue
        if is_bare:
            array = array[None]
        _check_tensor(array, tensor, signature, words)
        got_shape = array.shape
        if n < 0:
            n, first = got_shape[0], name
        elif got_shape[0] != n:
            raise WrongShape(
                f"input {name!r} has {got_shape[0]} examples, input {first!r} has {n}; send as many of each"
            )
        if not tensor.is_fixed:
            _agree(tensor, signature, got_shape, lengths, words)
    if n > max_instances:
        raise TooManyInstances(n, limit=max_instances)
    if n <= 0:
        raise EmptyRequest("the tensors' first dimension, which counts examples, is 0: send at least one example")
    each = tuple(lengths[axis.name][0] for axis in signature.axes)
    return _Form(n, each if signature.has_lengths else None, is_bare)


def _check_tensor(array: Array, tensor: TensorSignature, signature: ModelSignature, words: Mapping[str, str]) -> None:
    """Compare dtype, number of dimensions and, where all are fixed, sizes."""
    if tensor.dtype not in words:
        raise _nameless(tensor)
    if array.dtype != numpy_dtype(tensor.dtype):
        got = words.get("string" if array.dtype == object else array.dtype.name, array.dtype.name)
        raise WrongDtype(f"input {tensor.name!r}: expected {words[tensor.dtype]}, got {got}; send it as that")
    if array.ndim != 1 + len(tensor.shape) or (tensor.is_fixed and array.shape[1:] != tensor.shape):
        raise WrongShape(_shape_sentence(tensor, signature, array.shape, words))


def _check_names(tensors: Mapping[str, Array], signature: ModelSignature) -> None:
    missing = [tensor.name for tensor in signature.required if tensor.name not in tensors]
    known = [tensor.name for tensor in signature.inputs]
    unknown = [name for name in tensors if name not in known]
    if not missing and not unknown:
        return
    parts = [f"input {_listed(missing)} is missing"] if missing else []
    parts += [f"{_listed(unknown)} is no input of this model"] if unknown else []
    raise WrongKeys("; ".join(parts) + f"; it has {_listed(known)}")


def _agree(
    tensor: TensorSignature,
    signature: ModelSignature,
    got_shape: Sequence[int],
    lengths: dict[str, tuple[int, str]],
    words: Mapping[str, str],
) -> None:
    """Compare the sizes of a tensor whose shape varies with the signature and with the other inputs."""
    for dim, size in zip(tensor.shape, got_shape[1:], strict=True):
        if isinstance(dim, int):
            if size != dim:
                raise WrongShape(_shape_sentence(tensor, signature, got_shape, words))
            continue
        longest = signature.axes[signature.axis_index[dim]].max
        if size > longest:
            raise WrongShape(_shape_sentence(tensor, signature, got_shape, words) + f"; shorten it to {longest}")
        known, by = lengths.setdefault(dim, (size, tensor.name))
        if known != size:
            raise WrongShape(
                f"input {tensor.name!r}: its length is {size}, but input {by!r} has {known}; "
                "send both at the same length"
            )


def _shape_sentence(
    tensor: TensorSignature, signature: ModelSignature, got: Sequence[int], words: Mapping[str, str]
) -> str:
    sizes = [
        dim if isinstance(dim, int) else f"<={signature.axes[signature.axis_index[dim]].max}" for dim in tensor.shape
    ]
    return (
        f"input {tensor.name!r}: expected {words[tensor.dtype]}{shape_text(['n', *sizes])}, got {shape_text(got)}; "
        "the first dimension counts examples"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name if len(name) <= 60 else name[:57] + "...") for name in names[:10])


def batch_shape(tensor: TensorSignature) -> list[int]:
    """Return a tensor's shape with the dimension of examples: -1 where it is any size."""
    return [-1, *(dim if isinstance(dim, int) else -1 for dim in tensor.shape)]


def _nameless(tensor: TensorSignature) -> WrongDtype:
    return WrongDtype(
        f"{tensor.name!r} is {tensor.dtype}, which this protocol has no name for: the model can't be asked in it"
    )


def selected_outputs(asked: Sequence[str], signature: ModelSignature, *, words: Mapping[str, str]) -> tuple[int, ...]:
    """Return the places of the outputs that are asked for; none named: all. Errors: WrongKeys, WrongDtype."""
    names = [tensor.name for tensor in signature.outputs]
    if not asked:
        asked = names
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise WrongKeys(f"{_listed(unknown)} is no output of this model; it has {_listed(names)}")
    if len(set(asked)) < len(asked):
        raise WrongKeys(f"an output is asked for twice in {_listed(asked)}; name each once")
    places = tuple(names.index(name) for name in asked)
    for place in places:
        if signature.outputs[place].dtype not in words:
            raise _nameless(signature.outputs[place])
    return places


def stacked(column: Column, tensor: TensorSignature) -> Array:
    """Return an output as one array ``[n, *shape]``. Errors: RaggedOutput."""
    if not isinstance(column, list):
        return column
    shapes = sorted({row.shape for row in column})
    if len(shapes) > 1:
        raise RaggedOutput(tensor.name, shape_text(shapes[0]), shape_text(shapes[-1]))
    # np.stack gives object arrays a wrong shape for scalars; concatenating flat rows does not.
    flat = np.concatenate([row.reshape(-1) for row in column]) if column else np.empty(0, numpy_dtype(tensor.dtype))
    return flat.reshape(len(column), *(shapes[0] if shapes else ()))
