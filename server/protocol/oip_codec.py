"""One version's codec of the Open Inference Protocol: bodies to rows, by form where it is known, else exactly."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from server.protocol.errors import MalformedRequest, WrongDtype
from server.protocol.oip_answer import AnswerWriter
from server.protocol.oip_datatypes import DATATYPES
from server.protocol.oip_form import Form, KnownForms, Parts, message_of, split
from server.protocol.oip_many import Found, read_together
from server.protocol.oip_plan import Plan, plan_request
from server.protocol.oip_raw import plan_raw
from server.protocol.oip_request import exact_request
from server.protocol.oip_values import JsonSource, ValueReader
from server.protocol.row_octets import has_rows_of_one_size
from server.protocol.rows import Array, Column, Encoded, Octets, Rows
from server.protocol.seeds import fresh_seeds
from server.protocol.wire import Asked, ReadTogether
from server.signature import TensorSignature

__all__ = ["InferCall", "OipCodec"]

#: Longer forms are not remembered.
_MAX_FORM_BYTES = 4_096
#: Of a body without JSON.
_NO_PARTS: Parts = ((), [], None)
#: JSON's; Python's own has two characters more.
_SPACE = b" \t\r\n"


class InferCall:
    """A request that was read, and how its answer is to be written."""

    __slots__ = ("_id_text", "_prepared", "rows")

    def __init__(self, rows: Rows, prepared: Prepared, id_text: bytes | None) -> None:
        self.rows = rows
        self._prepared = prepared
        self._id_text = id_text

    @property
    def timeout_s(self) -> float | None:
        """The deadline that the request names."""
        return self._prepared.plan.timeout_s

    @property
    def priority(self) -> int | None:
        """The priority that it names."""
        return self._prepared.plan.priority

    def encode(self, outputs: Sequence[Column]) -> Encoded:
        """Write the answer; ``outputs`` are in the signature's order. Errors: RaggedOutput."""
        return self._prepared.writer.one(outputs, self._id_text)


class Prepared:
    """A plan, with what reads the values and writes the answers of every request that has it."""

    __slots__ = ("_is_plain", "_tensors", "is_alone", "is_joined", "plan", "readers", "shapes", "sources", "writer")

    def __init__(
        self, plan: Plan, tensors: Sequence[TensorSignature], readers: Sequence[ValueReader], writer: AnswerWriter
    ) -> None:
        self.plan = plan
        self.writer = writer
        self._tensors = tensors
        self.readers = readers
        #: What reads the inputs that are JSON, in the order in which they are sent.
        self.sources = [
            (planned.index, JsonSource(readers[planned.index], planned.shape))
            for planned in plan.inputs
            if planned.n_bytes is None
        ]
        #: True: it has a deadline or a priority of its own.
        self.is_alone = plan.timeout_s is not None or plan.priority is not None
        #: The shape of one row of each input, of those that are fixed.
        self.shapes = [tuple(dim for dim in tensor.shape if isinstance(dim, int)) for tensor in tensors]
        #: True: every input was sent, and all of its rows are alike.
        self.is_joined = len(plan.inputs) == len(tensors) and all(map(has_rows_of_one_size, tensors))
        #: True: the values of the only input are the only column as they are.
        self._is_plain = len(self._tensors) == 1 and self._tensors[0].is_fixed and not plan.is_single

    def read(self, parts: Parts, body: Octets, *, start: int) -> InferCall | None:
        """Read a request that was taken apart: its JSON values, and the binary ones from ``start`` on.

        None where it takes exact reading. Errors: WrongShape and WrongDtype, for binary values.
        """
        _, values, id_text = parts
        if len(body) - start != self.plan.n_binary or not _is_text(id_text):
            return None
        arrays: dict[int, Array] = {}
        for (index, source), text in zip(self.sources, values, strict=True):
            array = source.read(text, body_bytes=len(body))
            if array is None:
                return None
            arrays[index] = array
        return self.put_together(arrays, body, start=start, id_text=id_text)

    def put_together(
        self, arrays: dict[int, Array], body: Octets, *, start: int, id_text: bytes | None = None
    ) -> InferCall:
        """Read the binary values too, and return all as rows. Errors: MalformedRequest; WrongShape; WrongDtype."""
        plan = self.plan
        if len(body) - start != plan.n_binary:
            raise MalformedRequest(
                f"{len(body) - start} bytes follow the JSON part, the inputs' 'binary_data_size' make "
                f"{plan.n_binary} in all"
            )
        for planned in plan.inputs:
            n_bytes = planned.n_bytes
            if n_bytes is not None:
                reader = self.readers[planned.index]
                arrays[planned.index] = reader.from_bytes(body, start, n_bytes, planned.shape, is_bare=planned.is_bare)
                start += n_bytes
        if self._is_plain:
            return InferCall(Rows(plan.n, (arrays[0],)), self, id_text)
        columns: list[Column] = []
        for index, tensor in enumerate(self._tensors):
            array = arrays.get(index)
            if array is None:
                columns.append(fresh_seeds(plan.n))
                continue
            stacked = array[None] if plan.is_single else array
            columns.append(stacked if tensor.is_fixed else list(stacked))
        lengths = [plan.lengths] * plan.n if plan.lengths else None
        return InferCall(Rows(plan.n, tuple(columns), lengths), self, id_text)


class OipCodec:
    """Reads requests to one version, and writes their answers. Make one for each signature and keep it."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        # A signature is held so that its identity, which codecs are kept by, stays its own.
        self._signature = signature = asked.signature
        self._forms: KnownForms[Form, Prepared] = KnownForms()
        self._raw_forms: KnownForms[int, Prepared] = KnownForms()
        #: By their bytes, forms that nothing was cut out of: all values are binary.
        self._headers: KnownForms[bytes, tuple[Parts, Prepared]] = KnownForms()
        #: A form around one value and nothing else that was cut out, the last that was met: most bodies have it too.
        self._latest: tuple[tuple[bytes, bytes], Prepared] | None = None
        self._writers: KnownForms[object, AnswerWriter] = KnownForms()
        self._nameless = next(
            (tensor for tensor in (*signature.inputs, *signature.outputs) if tensor.dtype not in DATATYPES), None
        )
        self._readers = (
            [ValueReader(signature, tensor) for tensor in signature.inputs] if self._nameless is None else []
        )

    def decode(self, body: Octets, *, n_json: int | None, max_instances: int) -> InferCall:
        """Read a body whose first ``n_json`` bytes are JSON and whose others are binary values; None: all is JSON.

        0: all of it is the values of the only input. Errors: every ProtocolError but UnknownSignature.
        """
        if n_json == 0:
            return self._raw(body, max_instances)
        text = bytes(body if n_json is None else body[:n_json])
        parts = split(text)
        if parts is not None:
            prepared = self._forms.get(parts[0])
            if prepared is not None and prepared.plan.n <= max_instances and n_json in (None, len(text)):
                call = prepared.read(parts, body, start=len(text))
                if call is not None:
                    return call
        return self._decode(body, text, parts, n_json=n_json, max_instances=max_instances)

    def forget(self) -> None:
        """Forget the forms that are known."""
        self._forms, self._raw_forms, self._headers = KnownForms(), KnownForms(), KnownForms()
        self._latest = None

    def decode_many(
        self, bodies: Sequence[bytes], n_jsons: Sequence[int | None], *, max_instances: int
    ) -> ReadTogether:
        """Read several requests at once: those whose form is known. The others are read alone, and known then."""
        found: list[Found] = []
        alone: list[int] = []
        for member, (body, n_json) in enumerate(zip(bodies, n_jsons, strict=True)):
            known = self._known(body, n_json)
            start = len(body) if n_json is None else n_json
            if known is None:
                alone.append(member)
                continue
            parts, prepared = known
            plan = prepared.plan
            if plan.n > max_instances or len(body) - start != plan.n_binary or prepared.is_alone:
                alone.append(member)
            else:
                found.append((member, parts, prepared, body, start))
        return read_together(found, alone)

    def _known(self, body: bytes, n_json: int | None) -> tuple[Parts, Prepared] | None:
        """Return a body's parts and what was made of its form, if that is known."""
        if n_json == 0:
            raw = self._raw_forms.get(len(body))
            return None if raw is None else (_NO_PARTS, raw)
        text = body if n_json is None else body[:n_json]
        if n_json is not None and (known := self._headers.get(text)) is not None:
            return known
        latest = self._latest
        if latest is not None:
            (before, after), made = latest
            # What a value is, whoever reads it sees: what is around it is all that makes a form.
            if text.startswith(before) and text.endswith(after) and len(text) > len(before) + len(after):
                return (latest[0], [text[len(before) : len(text) - len(after)].lstrip(_SPACE)], None), made
        parts = split(text)
        prepared = None if parts is None else self._forms.get(parts[0])
        if parts is None or prepared is None or not _is_text(parts[2]):
            return None
        if len(parts[0]) == 2 and parts[0][0] is not None and parts[0][1] is not None:
            self._latest = (parts[0][0], parts[0][1]), prepared
        if parts[0] == (text,):
            self._headers.keep(text, (parts, prepared))
        elif parts[1]:
            # Python's own writer puts a space before each value.
            parts = parts[0], [value.lstrip(_SPACE) for value in parts[1]], parts[2]
        return parts, prepared

    def _decode(
        self,
        body: Octets,
        text: bytes,
        parts: Parts | None,
        *,
        n_json: int | None,
        max_instances: int,
    ) -> InferCall:
        """Read a body of a form that is not known, or whose values are not what most are."""
        self._check_datatypes()
        if n_json is not None and n_json > len(body):
            raise MalformedRequest(
                f"Inference-Header-Content-Length says {n_json} bytes of JSON, the body has {len(body)}"
            )
        has_binary = n_json is not None
        if parts is not None and self._forms.get(parts[0]) is None:
            form, _, id_text = parts
            message = message_of(form)
            # An id that could not be cut out is another one in the next request.
            if message is not None and (message.id is None) is (id_text is None):
                prepared = self._prepared(
                    plan_request(message, self._signature, has_binary=has_binary, max_instances=max_instances)
                )
                if sum(map(_size, form)) <= _MAX_FORM_BYTES:
                    self._forms.keep(form, prepared)
                call = prepared.read(parts, body, start=len(text))
                if call is not None:
                    return call
        message = exact_request(text)
        plan = plan_request(message, self._signature, has_binary=has_binary, max_instances=max_instances)
        arrays = {
            planned.index: self._readers[planned.index].from_value(sent.data, planned.shape)
            for planned, sent in zip(plan.inputs, message.inputs, strict=True)
            if sent.data is not msgspec.UNSET
        }
        # ASCII: an id may hold half of a surrogate pair.
        id_text = None if message.id is None else json.dumps(message.id).encode()
        return self._prepared(plan).put_together(arrays, body, start=len(text), id_text=id_text)

    def _raw(self, body: Octets, max_instances: int) -> InferCall:
        """Read a body that is nothing but values: its length is all that there is to its form."""
        prepared = self._raw_forms.get(len(body))
        if prepared is None or prepared.plan.n > max_instances:
            self._check_datatypes()
            prepared = self._prepared(plan_raw(len(body), self._signature, max_instances=max_instances))
            self._raw_forms.keep(len(body), prepared)
        return prepared.put_together({}, body, start=0)

    def _check_datatypes(self) -> None:
        if self._nameless is not None:
            raise WrongDtype(
                f"{self._nameless.name!r} is {self._nameless.dtype}, which the Open Inference Protocol has no datatype "
                "for: this model can't be asked in it"
            )

    def _prepared(self, plan: Plan) -> Prepared:
        asked, answer = self._asked, (plan.outputs, plan.is_single)
        writer = self._writers.get(answer)
        if writer is None:
            writer = AnswerWriter(
                plan.outputs, asked.signature, is_single=plan.is_single, model=asked.name, version=asked.version
            )
            self._writers.keep(answer, writer)
        return Prepared(plan, asked.signature.inputs, self._readers, writer)


def _is_text(id_text: bytes | None) -> bool:
    """Return whether the bytes of an id are characters."""
    try:
        return id_text is None or id_text.isascii() or bool(id_text.decode())
    except UnicodeDecodeError:
        return False


def _size(piece: bytes | None) -> int:
    return 0 if piece is None else len(piece)
