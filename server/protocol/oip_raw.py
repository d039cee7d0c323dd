"""A request without any JSON: the body is the values of a model's only input, and the answer is binary.

Nothing says a shape, so it follows from the bytes: as many examples as they make, or one example where its length
varies, as long as they make it. One byte string stands alone, without its length before it.
Source: Triton's binary tensor data extension, "raw binary request".
"""

from __future__ import annotations

import math

from server.protocol.dtypes import describe, numpy_dtype
from server.protocol.errors import EmptyRequest, MalformedRequest, TooManyInstances, WrongKeys, WrongShape
from server.protocol.oip_plan import Plan, PlannedInput, PlannedOutput
from server.signature import STRING, ModelSignature, TensorSignature

__all__ = ["plan_raw"]


def plan_raw(n_bytes: int, signature: ModelSignature, *, max_instances: int) -> Plan:
    """Plan a body of ``n_bytes`` binary values. Errors: WrongKeys; WrongShape; EmptyRequest; TooManyInstances."""
    if len(signature.required) != 1:
        raise WrongKeys(
            f"a body without JSON is for models with one input, this one has {len(signature.required)}: "
            "say in JSON which values are whose"
        )
    (tensor,) = signature.required
    shape = _shape(n_bytes, tensor, signature)
    if shape[0] == 0:
        raise EmptyRequest("the body is empty: send at least one example")
    if shape[0] > max_instances:
        raise TooManyInstances(shape[0], limit=max_instances)
    index = signature.inputs.index(tensor)
    planned = PlannedInput(index=index, shape=shape, n_bytes=n_bytes, is_bare=tensor.dtype == STRING)
    return Plan(
        n=shape[0],
        is_single=False,
        lengths=tuple(shape[1 + tensor.shape.index(axis.name)] for axis in signature.axes),
        inputs=(planned,),
        outputs=tuple(PlannedOutput(index=index, is_binary=True) for index in range(len(signature.outputs))),
        priority=None,
        timeout_s=None,
        n_binary=n_bytes,
    )


def _shape(n_bytes: int, tensor: TensorSignature, signature: ModelSignature) -> tuple[int, ...]:
    if tensor.dtype == STRING:
        if tensor.shape:
            raise MalformedRequest(
                f"input {tensor.name!r} takes several byte strings: say in JSON how many there are, and how long"
            )
        return (1,)
    varying = [place for place, dim in enumerate(tensor.shape) if not isinstance(dim, int)]
    if len(varying) > 1:
        raise MalformedRequest(f"input {tensor.name!r} has several dimensions that vary: say its shape in JSON")
    step = numpy_dtype(tensor.dtype).itemsize * math.prod(dim for dim in tensor.shape if isinstance(dim, int))
    count, left = divmod(n_bytes, step) if step else (1, n_bytes)
    longest = signature.axes[0].max if varying else count
    if left or count > longest:
        raise WrongShape(
            f"input {tensor.name!r}: {n_bytes} bytes are no whole number of examples of "
            f"{describe(tensor, signature)}, {step} bytes{' for each step of its length' if varying else ''}"
        )
    if not varying:
        return (count, *(dim for dim in tensor.shape if isinstance(dim, int)))
    return (1, *(dim if isinstance(dim, int) else count for dim in tensor.shape))
