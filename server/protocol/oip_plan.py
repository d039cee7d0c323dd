"""A request of the Open Inference Protocol held against a model: which values are where, and what is answered.

A plan depends on everything but the values, so clients that send the same again and again share one (see ``oip_form``).

Shapes: ``[n, *example]`` for all inputs, n examples; or exactly the example's for all of them, which is one example,
and then the answer has no dimension of examples either. The numbers of dimensions tell which. Where an input has a
length axis, all examples of a request have the length that the shape says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from server.protocol.dtypes import describe, numpy_dtype, shape_text
from server.protocol.errors import EmptyRequest, MalformedRequest, TooManyInstances, WrongDtype, WrongKeys, WrongShape
from server.protocol.oip_datatypes import DATATYPES, ONLY_BINARY
from server.protocol.oip_request import InferRequest, InputTensor, OutputWish, flag_of, whole_of
from server.protocol.tensor_rows import selected_outputs
from server.signature import STRING, ModelSignature, TensorSignature

__all__ = ["Plan", "PlannedInput", "PlannedOutput", "plan_request"]

#: Up to 24 hours, in microseconds, as the header that sets a deadline.
_MAX_TIMEOUT_US = 86_400_000_000
#: Nobody has more levels than these; 0 is the ordinary one, as with Triton.
_MAX_PRIORITY = 255
_NOT_OFFERED = {
    "classification": "leave out 'classification' and take the largest values yourself",
    "shared_memory_region": "shared memory is not offered: send the values with the request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInput:
    """One input that was sent: where it belongs, its shape as written, and its bytes, None where they are JSON."""

    index: int
    shape: tuple[int, ...]
    n_bytes: int | None
    #: True: the bytes are one byte string, without its length before it.
    is_bare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOutput:
    """One output that is wanted, by its place in the signature."""

    index: int
    is_binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A request without its values. ``inputs`` are in the order in which they were sent.

    ``is_single``: shapes have no dimension of examples. ``lengths`` are the sizes of the signature's axes.
    """

    n: int
    is_single: bool
    lengths: tuple[int, ...]
    inputs: tuple[PlannedInput, ...]
    outputs: tuple[PlannedOutput, ...]
    priority: int | None
    timeout_s: float | None
    #: Bytes of all binary inputs together.
    n_binary: int


def plan_request(message: InferRequest, signature: ModelSignature, *, has_binary: bool, max_instances: int) -> Plan:
    """Hold a request against a model.

    ``has_binary`` tells whether binary values may follow the JSON.
    Errors: every ProtocolError but UnknownSignature.
    """
    places = {tensor.name: place for place, tensor in enumerate(signature.inputs)}
    _check_names([tensor.name for tensor in message.inputs], signature)
    inputs = tuple(
        PlannedInput(
            index=places[sent.name],
            shape=_checked_shape(sent),
            n_bytes=_binary_bytes(sent, has_binary=has_binary),
        )
        for sent in message.inputs
    )
    for planned, sent in zip(inputs, message.inputs, strict=True):
        _check_datatype(sent, signature.inputs[planned.index])
        _check_size(planned, signature.inputs[planned.index])
    if not inputs:
        raise EmptyRequest("'inputs' is empty: send at least one example")
    is_single, n, lengths = _form(inputs, signature)
    if n == 0:
        raise EmptyRequest("the shapes say 0 examples: send at least one")
    if n > max_instances:
        raise TooManyInstances(n, limit=max_instances)
    parameters = message.parameters or {}
    priority = whole_of(parameters, "priority", most=_MAX_PRIORITY)
    timeout_us = whole_of(parameters, "timeout", most=_MAX_TIMEOUT_US)
    return Plan(
        n=n,
        is_single=is_single,
        lengths=lengths,
        inputs=inputs,
        outputs=_outputs(message.outputs, signature, in_binary=bool(flag_of(parameters, "binary_data_output"))),
        priority=priority or None,
        timeout_s=timeout_us / 1e6 if timeout_us else None,
        n_binary=sum(planned.n_bytes or 0 for planned in inputs),
    )


def _check_names(sent: list[str], signature: ModelSignature) -> None:
    known = [tensor.name for tensor in signature.inputs]
    for place, name in enumerate(sent):
        if name not in known:
            raise WrongKeys(f"{_shown(name)} is no input of this model; it has {_listed(known)}")
        if name in sent[:place]:
            raise WrongKeys(f"input {name!r} is there twice; send it once")
    missing = [tensor.name for tensor in signature.required if tensor.name not in sent]
    if missing:
        raise WrongKeys(f"input {_listed(missing)} is missing; send all of {_listed(known)}")


def _checked_shape(sent: InputTensor) -> tuple[int, ...]:
    if any(size < 0 for size in sent.shape):
        raise WrongShape(f"input {sent.name!r}: the shape {shape_text(sent.shape)} has a negative size")
    return tuple(sent.shape)


def _binary_bytes(sent: InputTensor, *, has_binary: bool) -> int | None:
    parameters = sent.parameters or {}
    if "shared_memory_region" in parameters:
        raise MalformedRequest(f"input {sent.name!r}: {_NOT_OFFERED['shared_memory_region']}")
    n_bytes = whole_of(parameters, "binary_data_size", most=2**62)
    if n_bytes is None:
        if sent.data is msgspec.UNSET:
            raise MalformedRequest(
                f"input {sent.name!r} has no values: send them as 'data', or in binary with 'binary_data_size'"
            )
    elif not has_binary:
        raise MalformedRequest(
            f"input {sent.name!r} has 'binary_data_size', but the header Inference-Header-Content-Length is missing: "
            "send in it how many bytes the JSON part has"
        )
    elif sent.data is not msgspec.UNSET:
        raise MalformedRequest(f"input {sent.name!r} has both 'data' and 'binary_data_size'; send one of them")
    return n_bytes


def _check_datatype(sent: InputTensor, tensor: TensorSignature) -> None:
    expected = DATATYPES[tensor.dtype]
    if sent.datatype != expected:
        raise WrongDtype(f"input {sent.name!r}: expected {expected}, got {_shown(sent.datatype)}; convert it")
    if expected in ONLY_BINARY and sent.data is not msgspec.UNSET:
        raise WrongDtype(
            f"input {sent.name!r} is {expected}, which has no form in JSON: send it in binary ('binary_data_size')"
        )


def _check_size(planned: PlannedInput, tensor: TensorSignature) -> None:
    if planned.n_bytes is None or tensor.dtype == STRING:
        return
    expected = math.prod(planned.shape) * numpy_dtype(tensor.dtype).itemsize
    if planned.n_bytes != expected:
        raise WrongShape(
            f"input {tensor.name!r}: shape {shape_text(planned.shape)} of {DATATYPES[tensor.dtype]} takes {expected} "
            f"bytes, 'binary_data_size' says {planned.n_bytes}"
        )


def _form(inputs: tuple[PlannedInput, ...], signature: ModelSignature) -> tuple[bool, int, tuple[int, ...]]:
    """Return whether there is no dimension of examples, how many examples, and the sizes of the axes."""
    first, n = inputs[0], 1
    is_single = len(first.shape) == len(signature.inputs[first.index].shape)
    lengths: dict[str, tuple[int, str]] = {}
    for planned in inputs:
        tensor = signature.inputs[planned.index]
        if len(planned.shape) != len(tensor.shape) + (not is_single):
            raise WrongShape(_shape_sentence(planned, tensor, signature, is_single=is_single))
        inner = planned.shape if is_single else planned.shape[1:]
        for dim, size in zip(tensor.shape, inner, strict=True):
            if isinstance(dim, int):
                if size != dim:
                    raise WrongShape(_shape_sentence(planned, tensor, signature, is_single=is_single))
                continue
            known, by = lengths.setdefault(dim, (size, tensor.name))
            if size > signature.axes[signature.axis_index[dim]].max:
                raise WrongShape(_shape_sentence(planned, tensor, signature, is_single=is_single))
            if known != size:
                raise WrongShape(
                    f"input {tensor.name!r}: its length is {size}, but input {by!r} has {known}; "
                    "send both at the same length"
                )
        if is_single:
            continue
        if planned is first:
            n = planned.shape[0]
        elif planned.shape[0] != n:
            raise WrongShape(
                f"input {tensor.name!r} has {planned.shape[0]} examples, input "
                f"{signature.inputs[first.index].name!r} has {n}; send the same number of each"
            )
    return is_single, n, tuple(lengths[axis.name][0] for axis in signature.axes)


def _shape_sentence(
    planned: PlannedInput, tensor: TensorSignature, signature: ModelSignature, *, is_single: bool
) -> str:
    dims = [
        str(dim) if isinstance(dim, int) else f"<={signature.axes[signature.axis_index[dim]].max}"
        for dim in tensor.shape
    ]
    expected = shape_text(dims if is_single and len(planned.shape) == len(dims) else ["n", *dims])
    return (
        f"input {tensor.name!r}: expected the shape {expected} (one example is {describe(tensor, signature)}), "
        f"got {shape_text(planned.shape)}"
    )


def _outputs(
    wishes: list[OutputWish] | None, signature: ModelSignature, *, in_binary: bool
) -> tuple[PlannedOutput, ...]:
    wishes = wishes or []
    for wish in wishes:
        for parameter, hint in _NOT_OFFERED.items():
            if wish.parameters and parameter in wish.parameters:
                raise MalformedRequest(f"output {_shown(wish.name)}: {hint}")
    own = {wish.name: flag_of(wish.parameters, "binary_data") for wish in wishes}
    planned = []
    for index in selected_outputs([wish.name for wish in wishes], signature, words=DATATYPES):
        is_binary = own.get(signature.outputs[index].name)
        planned.append(PlannedOutput(index=index, is_binary=in_binary if is_binary is None else is_binary))
    for output in planned:
        datatype = DATATYPES[signature.outputs[output.index].dtype]
        if datatype in ONLY_BINARY and not output.is_binary:
            raise WrongDtype(
                f"output {signature.outputs[output.index].name!r} is {datatype}, which has no form in JSON: ask for it "
                "in binary ('binary_data': true on the output, or 'binary_data_output': true for all)"
            )
    return tuple(planned)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:57] + "...")


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))
