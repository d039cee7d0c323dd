"""Reads a prediction request of TensorFlow Serving's REST form, any that is one, and says what is wrong with others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from server.protocol.dtypes import numpy_dtype
from server.protocol.errors import EmptyRequest, MalformedRequest, TooManyInstances, WrongKeys, WrongShape
from server.protocol.json_examples import ExampleReader, json_kind, parse_json
from server.protocol.rows import Array, Column, PredictRequest, Rows
from server.protocol.seeds import fresh_seed
from server.signature import STRING, ModelSignature

__all__ = ["ExactReader"]

#: How many keys an error names.
_SHOWN_KEYS = 10


class ExactReader:
    """The reference reader for one signature: slow, and the only one that raises."""

    def __init__(self, signature: ModelSignature) -> None:
        self._signature = signature
        self._names = tuple(tensor.name for tensor in signature.inputs)
        self._required = tuple(tensor.name for tensor in signature.required)
        self._readers = tuple(ExampleReader(signature, tensor) for tensor in signature.inputs)

    def decode(self, body: bytes, *, max_instances: int) -> PredictRequest:
        """Read a request body. Errors: every ProtocolError but UnknownSignature."""
        message = parse_json(body)
        if not isinstance(message, dict):
            raise MalformedRequest(
                f"expected a JSON object with 'instances' or 'inputs', got {json_kind(message)}; "
                'send {"instances": [...]}'
            )
        signature_name = message.get("signature_name")
        if not (signature_name is None or isinstance(signature_name, str)):
            raise MalformedRequest(f"'signature_name' must be a string, got {json_kind(signature_name)}")
        row_form, column_form = "instances" in message, "inputs" in message
        if row_form and column_form:
            raise WrongKeys("the request has both 'instances' and 'inputs'; send one of them")
        if row_form:
            examples = self._from_instances(message["instances"], max_instances)
        elif column_form:
            examples = self._from_inputs(message["inputs"], max_instances)
        else:
            raise WrongKeys(f"the request has neither 'instances' nor 'inputs', but {_keys(message)}; send one of them")
        return PredictRequest(self._rows(examples), row_form, signature_name)

    def _from_instances(self, instances: Any, max_instances: int) -> list[Sequence[Any]]:
        if not isinstance(instances, list):
            raise MalformedRequest(f"'instances' must be an array of examples, got {json_kind(instances)}")
        _check_count(len(instances), "instances", max_instances)
        return [self._values(example, index) for index, example in enumerate(instances)]

    def _values(self, example: Any, index: int) -> Sequence[Any]:
        """Return the values of one example in the order of the signature's inputs."""
        if isinstance(example, dict) and not self._is_bytes_value(example):
            if not self._has_keys(example):
                raise WrongKeys(f"instance {index}: {self._key_difference(example)}")
            named = example
        elif len(self._required) != 1:
            raise WrongKeys(
                f"instance {index}: expected an object with the keys {_listed(self._names)}, got {json_kind(example)}"
            )
        else:
            named = {self._required[0]: example}
        return [named[name] if name in named else fresh_seed() for name in self._names]

    def _has_keys(self, got: dict[str, Any]) -> bool:
        return set(self._required) <= got.keys() <= set(self._names)

    def _from_inputs(self, inputs: Any, max_instances: int) -> list[Sequence[Any]]:
        names = self._required
        if isinstance(inputs, dict):
            if not self._has_keys(inputs):
                raise WrongKeys(f"'inputs': {self._key_difference(inputs)}")
            names = (*names, *(name for name in inputs if name not in names))
            named = inputs
        elif len(names) == 1:
            named = {names[0]: inputs}
        else:
            raise WrongKeys(
                f"'inputs': expected an object with the keys {_listed(self._names)}, got {json_kind(inputs)}"
            )
        columns = [named[name] for name in names]
        for name, column in zip(names, columns, strict=True):
            if not isinstance(column, list):
                raise WrongShape(
                    f"input {name!r}: expected an array with one entry for each example, got {json_kind(column)}"
                )
            if len(column) != len(columns[0]):
                raise WrongShape(
                    f"input {name!r} has {len(column)} examples, input {names[0]!r} has {len(columns[0])}; "
                    "send as many of each"
                )
        n = len(columns[0]) if columns else 0
        _check_count(n, "inputs", max_instances)
        given = dict(zip(names, columns, strict=True))
        filled = [given[name] if name in given else [fresh_seed() for _ in range(n)] for name in self._names]
        return list(zip(*filled, strict=True))

    def _is_bytes_value(self, value: dict[str, Any]) -> bool:
        required = self._signature.required
        return len(required) == 1 and required[0].dtype == STRING and value.keys() == {"b64"}

    def _key_difference(self, got: dict[str, Any]) -> str:
        missing = [name for name in self._required if name not in got]
        unknown = [name for name in got if name not in self._names]
        parts = [f"input {_listed(missing)} is missing"] if missing else []
        parts += [f"{_listed(unknown)} is no input of this model"] if unknown else []
        optional = [name for name in self._names if name not in self._required]
        may = f", and {_listed(optional)} if you like" if optional else ""
        return "; ".join(parts) + f"; send exactly {_listed(self._required)}{may}"

    def _rows(self, examples: list[Sequence[Any]]) -> Rows:
        signature = self._signature
        columns: list[list[Array]] = [[] for _ in self._readers]
        all_lengths: list[tuple[int, ...]] = []
        for index, example in enumerate(examples):
            lengths: dict[str, tuple[int, str]] = {}
            for column, reader, value in zip(columns, self._readers, example, strict=True):
                column.append(reader.read(value, index=index, lengths=lengths))
            if signature.has_lengths:
                all_lengths.append(tuple(lengths[axis.name][0] for axis in signature.axes))
        stacked: list[Column] = []
        for tensor, column in zip(signature.inputs, columns, strict=True):
            if tensor.is_fixed:
                # np.stack gives object arrays a wrong shape for scalars; concatenating flat rows does not.
                flat = np.concatenate([array.reshape(-1) for array in column])
                stacked.append(flat.astype(numpy_dtype(tensor.dtype), copy=False).reshape(len(column), *tensor.shape))
            else:
                stacked.append(column)
        return Rows(len(examples), tuple(stacked), all_lengths if signature.has_lengths else None)


def _check_count(n: int, where: str, max_instances: int) -> None:
    if n == 0:
        raise EmptyRequest(f"{where!r} is empty: send at least one example")
    if n > max_instances:
        raise TooManyInstances(n, limit=max_instances)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name if len(name) <= 60 else name[:57] + "...") for name in names[:_SHOWN_KEYS])
    return shown + (f" and {len(names) - _SHOWN_KEYS} more" if len(names) > _SHOWN_KEYS else "")


def _keys(message: dict[str, Any]) -> str:
    return _listed(list(message)) if message else "no key at all"
