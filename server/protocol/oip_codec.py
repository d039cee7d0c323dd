"""One version's codec of the Open Inference Protocol: bodies to rows, by form where it is known, else exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from server.protocol.errors import MalformedRequest, ProtocolError, TooManyInstances, WrongDtype
from server.protocol.oip_answer import AnswerWriter
from server.protocol.oip_datatypes import DATATYPES
from server.protocol.oip_form import KnownForms, message_of, split
from server.protocol.oip_plan import Plan, PlannedInput, plan_request
from server.protocol.oip_raw import plan_raw
from server.protocol.oip_request import exact_request
from server.protocol.oip_values import ValueReader
from server.protocol.rows import Array, Column, Encoded, Rows
from server.protocol.seeds import fresh_seeds
from server.protocol.wire import Asked

__all__ = ["InferCall", "OipCodec"]


class InferCall:
    """A request that was read, and how its answer is to be written."""

    __slots__ = ("_writer", "priority", "rows", "timeout_s")

    def __init__(self, rows: Rows, plan: Plan, writer: AnswerWriter) -> None:
        self.rows = rows
        self.timeout_s = plan.timeout_s
        self.priority = plan.priority
        self._writer = writer

    def encode(self, outputs: Sequence[Column]) -> Encoded:
        """Write the answer; ``outputs`` are in the signature's order. Errors: RaggedOutput."""
        return self._writer.write(outputs)


class OipCodec:
    """Reads requests to one version, and writes their answers. Make one for each signature and keep it."""

    def __init__(self, asked: Asked) -> None:
        self._signature = signature = asked.signature
        self._model, self._version = asked.name, asked.version
        self._forms: KnownForms[tuple[Plan, AnswerWriter]] = KnownForms()
        self._nameless = next(
            (tensor for tensor in (*signature.inputs, *signature.outputs) if tensor.dtype not in DATATYPES), None
        )
        self._readers = (
            [ValueReader(signature, tensor) for tensor in signature.inputs] if self._nameless is None else []
        )

    def decode(self, body: bytes, *, n_json: int | None, max_instances: int) -> InferCall:
        """Read a body whose first ``n_json`` bytes are JSON and whose others are binary values; None: all is JSON.

        0: all of it is the values of the only input. Errors: every ProtocolError but UnknownSignature.
        """
        if self._nameless is not None:
            raise WrongDtype(
                f"{self._nameless.name!r} is {self._nameless.dtype}, which the Open Inference Protocol has no datatype "
                "for: this model can't be asked in it"
            )
        if n_json == 0:
            plan = plan_raw(len(body), self._signature, max_instances=max_instances)
            return self._call(plan, self._writer(plan), {}, body, 0)
        if n_json is not None and n_json > len(body):
            raise MalformedRequest(
                f"Inference-Header-Content-Length says {n_json} bytes of JSON, the body has {len(body)}"
            )
        text = body if n_json is None else body[:n_json]
        found = self._by_form(body, text, has_binary=n_json is not None, max_instances=max_instances)
        return found or self._exactly(body, text, has_binary=n_json is not None, max_instances=max_instances)

    def _writer(self, plan: Plan) -> AnswerWriter:
        return AnswerWriter(plan, self._signature, model=self._model, version=self._version)

    def _by_form(self, body: bytes, text: bytes, *, has_binary: bool, max_instances: int) -> InferCall | None:
        """Read a body; None where it takes exact reading, to be read or to be refused."""
        parts = split(text)
        if parts is None:
            return None
        form, values = parts
        known = self._forms.get(form)
        if known is None:
            message = message_of(form)
            if message is None:
                return None
            plan = plan_request(message, self._signature, has_binary=has_binary, max_instances=max_instances)
            known = plan, self._writer(plan)
            if plan.id is None:  # the next request has another one
                self._forms.keep(form, known)
        plan, writer = known
        if plan.n > max_instances:
            raise TooManyInstances(plan.n, limit=max_instances)
        if plan.n_binary and not has_binary:
            return None
        given = [planned for planned in plan.inputs if planned.n_bytes is None]
        try:
            arrays = {
                planned.index: self._readers[planned.index].from_json(value, planned.shape, body_bytes=len(body))
                for planned, value in zip(given, values, strict=True)
            }
        except ProtocolError:
            return None
        return self._call(plan, writer, arrays, body, len(text))

    def _exactly(self, body: bytes, text: bytes, *, has_binary: bool, max_instances: int) -> InferCall:
        message = exact_request(text)
        plan = plan_request(message, self._signature, has_binary=has_binary, max_instances=max_instances)
        arrays = {
            planned.index: self._readers[planned.index].from_value(sent.data, planned.shape)
            for planned, sent in zip(plan.inputs, message.inputs, strict=True)
            if sent.data is not msgspec.UNSET
        }
        return self._call(plan, self._writer(plan), arrays, body, len(text))

    def _call(
        self, plan: Plan, writer: AnswerWriter, arrays: Mapping[int, Array], body: bytes, n_json: int
    ) -> InferCall:
        """Read the binary values, and put the rows together."""
        n_given = len(body) - n_json
        if n_given != plan.n_binary:
            raise MalformedRequest(
                f"{n_given} bytes follow the JSON part, the inputs' 'binary_data_size' make {plan.n_binary} in all"
            )
        found = dict(arrays)
        start = n_json
        for planned in plan.inputs:
            if planned.n_bytes is not None:
                found[planned.index] = self._binary(planned, body, start)
                start += planned.n_bytes
        columns: list[Column] = []
        for index, tensor in enumerate(self._signature.inputs):
            array = found.get(index)
            if array is None:
                columns.append(fresh_seeds(plan.n))
                continue
            stacked = array[None] if plan.is_single else array
            columns.append(stacked if tensor.is_fixed else list(stacked))
        lengths = [plan.lengths] * plan.n if self._signature.has_lengths else None
        return InferCall(Rows(plan.n, tuple(columns), lengths), plan, writer)

    def _binary(self, planned: PlannedInput, body: bytes, start: int) -> Any:
        assert planned.n_bytes is not None, "a plan says where its values are"
        reader = self._readers[planned.index]
        return reader.from_bytes(body, start, planned.n_bytes, planned.shape, is_bare=planned.is_bare)
