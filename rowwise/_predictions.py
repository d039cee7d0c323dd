"""Examples to the body of a predict request, and its answer back to arrays. Pure: no connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rowwise._metadata import RemoteSignature
from rowwise.errors import BadAnswer, WrongInputs
from rowwise.values import encode_json, from_wire, to_wire

__all__ = ["Prediction", "decode_predictions", "encode_instances"]

#: The outputs of one example: the array of a model with one output, else arrays by name.
Prediction = np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]


def encode_instances(
    name: str, signature: RemoteSignature, examples: Sequence[Any], chosen: Mapping[str, Any] | None = None
) -> bytes:
    """Return the body that asks model ``name`` for ``examples``; ``chosen`` are its other keys.

    An example is a dict of the model's inputs, or the bare value where there is one. Bare is also how the
    value of an only input travels. Errors: WrongInputs, naming the example.
    """
    instances = []
    for index, example in enumerate(examples):
        where = f"example {index} of model {name!r}"
        if not isinstance(example, Mapping):
            if len(signature.required) != 1:
                raise WrongInputs(f"{where}: expected a dict with {_listed(signature.inputs)}, got a bare value")
            instances.append(to_wire(example, where=where))
            continue
        if not set(signature.required) <= set(example) <= set(signature.inputs):
            raise WrongInputs(f"{where}: expected {_listed(signature.inputs)}, got {_listed(tuple(example))}")
        sent = [key for key in signature.inputs if key in example]
        values = {key: to_wire(example[key], where=f"input {key!r} of {where}") for key in sent}
        instances.append(values[signature.required[0]] if len(values) == len(signature.required) == 1 else values)
    return encode_json({**(chosen or {}), "instances": instances})


def decode_predictions(name: str, signature: RemoteSignature, answer: Any, *, n_examples: int) -> list[Prediction]:
    """Return the predictions of an answer in the dtypes that the model's metadata names. Errors: BadAnswer."""
    predictions = answer.get("predictions") if isinstance(answer, dict) else None
    if not isinstance(predictions, list) or len(predictions) != n_examples:
        raise BadAnswer(f"model {name!r}: expected {n_examples} predictions, got {str(answer)[:200]}")
    return [_prediction(f"prediction {i} of model {name!r}", signature, row) for i, row in enumerate(predictions)]


def _prediction(where: str, signature: RemoteSignature, row: Any) -> Prediction:
    if len(signature.outputs) == 1:
        ((_, dtype),) = signature.outputs.items()
        return from_wire(row, dtype, where=where)
    if not isinstance(row, dict) or set(row) != set(signature.outputs):
        raise BadAnswer(f"{where}: expected outputs {_listed(tuple(signature.outputs))}, got {str(row)[:200]}")
    return {
        key: from_wire(row[key], dtype, where=f"output {key!r} of {where}") for key, dtype in signature.outputs.items()
    }


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
