"""Messages that are read together mean what each means alone, and their answers are the same to the byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.protocol import Array, ProtocolError, ReadTogether
from server.protocol.messages import message_class
from server.protocol.oip_datatypes import DATATYPES
from server.protocol.oip_proto import InferCall, learn_infer
from server.protocol.proto_layout import KnownLayouts, Layout, places
from server.protocol.proto_many import TensorFormat
from server.protocol.tfs_proto import PredictMessage, learn_predict
from server.signature import LengthAxis, ModelSignature, TensorSignature
from tests.protocol.asked import EVERY_DTYPE, Someone, one_to_one, same_bits, values_of
from tests.protocol.oip_models import octets
from tests.protocol.test_oip_proto import message as infer_message
from tests.protocol.test_tfs_proto import message as predict_message
from tests.protocol.test_tfs_proto import tensor

KINDS: dict[str, tuple[Any, Any]] = {"infer": (InferCall, learn_infer), "predict": (PredictMessage, learn_predict)}


class Formats:
    """What makes formats of messages, as the gRPC server does."""

    def __init__(self, kind: str) -> None:
        self.exact, self.learn = KINDS[kind]
        self.unknown = TensorFormat(self.exact)
        self.layouts: KnownLayouts[TensorFormat] = KnownLayouts()

    def of(self, body: bytes) -> TensorFormat:
        found = self.layouts.find(body)
        if found is None:
            layout = self.learn(body)
            if layout is None:
                return self.unknown
            found = TensorFormat(self.exact, layout)
            self.layouts.keep(layout, found)
        return found

    def read(self, bodies: Sequence[bytes], asked: Any, *, max_instances: int = 10) -> ReadTogether:
        return TensorFormat.decode_many(bodies, [self.of(body) for body in bodies], asked, max_instances=max_instances)


def infer(array: Array, dtype: str, *, raw: bool, **fields: Any) -> bytes:
    if raw:
        return infer_message(array, dtype, **fields).SerializeToString()  # type: ignore[no-any-return]
    request = message_class("inference.ModelInferRequest")(model_name="m", **fields)
    one = request.inputs.add(name="x", datatype=DATATYPES[dtype], shape=array.shape)
    getattr(one.contents, "fp32_contents" if dtype == "float32" else "fp64_contents").extend(array.reshape(-1).tolist())
    return request.SerializeToString()  # type: ignore[no-any-return]


def predict(array: Array, dtype: str, *, content: bool) -> bytes:
    return predict_message(tensor(array, dtype, content=content)).SerializeToString()  # type: ignore[no-any-return]


def bodies_of(kind: str, dtype: str) -> list[list[bytes]]:
    """Three messages with other values of each form of a kind."""
    values = values_of(dtype)
    each = [values, values[::-1].copy(), np.concatenate([values[1:], values[1:]])]
    if kind == "infer":
        found = [[infer(array, dtype, raw=True) for array in each]]
        if dtype in ("float32", "float64"):
            found.append([infer(array, dtype, raw=False) for array in each])
        return found
    forms = (False,) if dtype == "string" else (True, False)
    return [[predict(array, dtype, content=content) for array in each] for content in forms]


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_answers_are_those_of_each_alone(kind: str, dtype: str) -> None:
    asked = one_to_one(dtype)
    exact = KINDS[kind][0]
    for bodies in bodies_of(kind, dtype):
        read = Formats(kind).read(bodies, asked)
        assert not read.alone
        (many,) = read.groups
        alone = [exact(body).decode(body, asked, max_instances=10) for body in bodies]
        assert list(many.members) == [0, 1, 2]
        assert many.counts == [2, 2, 2]
        assert same_bits(np.asarray(many.rows.columns[0]), np.concatenate([one.rows.columns[0] for one in alone]))
        outputs = [np.concatenate([values_of(dtype)] * 4)]
        texts = many.form.texts(outputs, 6)
        for number, request in enumerate(alone):
            start, stop = 2 * number, 2 * number + 2
            rows = [outputs[0][start:stop]]
            assert many.form.one(rows, None) == request.encode(rows)
            if texts is not None:
                assert texts.answer(start, stop, None) == request.encode(rows)
        is_cut = dtype in ("float32", "float64") if kind == "predict" else dtype != "string"
        assert (texts is not None) is is_cut


@pytest.mark.parametrize("kind", KINDS)
def test_what_memory_holds_is_read_as_one_array_and_answered_from_one(kind: str) -> None:
    asked = one_to_one("float32")
    for bodies in bodies_of(kind, "float32"):
        (many,) = Formats(kind).read(bodies, asked).groups
        column = np.asarray(many.rows.columns[0])
        assert (column.shape, column.flags.owndata) == ((6, 2), False)
        assert many.form.texts([column], 6) is not None


def test_ids_differ_in_messages_of_one_layout_and_are_repeated() -> None:
    asked, formats = one_to_one("float32"), Formats("infer")
    values = values_of("float32")
    bodies = [infer(values, "float32", raw=True, id=id_) for id_ in ("abc", "xyz", "q%d")]
    assert len({id(formats.of(body)) for body in bodies}) == 1
    (many,) = formats.read(bodies, asked).groups
    assert many.id_texts == [b"abc", b"xyz", b"q%d"]
    texts = many.form.texts([values], 2)
    assert texts is not None
    for body, id_text in zip(bodies, many.id_texts, strict=True):
        assert texts.answer(0, 2, id_text) == InferCall(body).decode(body, asked, max_instances=9).encode([values])


def test_an_id_that_is_no_ascii_is_read_exactly() -> None:
    formats = Formats("infer")
    values = values_of("float32")
    known = formats.of(infer(values, "float32", raw=True, id="abc"))
    assert formats.of(infer(values, "float32", raw=True, id="\u00e9x")) is not known


def test_several_inputs_and_outputs_keep_their_places() -> None:
    shapes = {"a": ("float32", (2,)), "b": ("int16", ()), "c": ("float64", (1, 2))}
    tensors = tuple(TensorSignature(name=name, dtype=dtype, shape=shape) for name, (dtype, shape) in shapes.items())
    asked = Someone(ModelSignature(inputs=tensors, outputs=tensors))
    bodies = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        request = message_class("inference.ModelInferRequest")(model_name="m", id=f"r{seed}")
        for name in ("c", "a", "b"):
            dtype, shape = shapes[name]
            array = (random.normal(size=(2, *shape)) * 100).astype(dtype)
            request.inputs.add(name=name, datatype=DATATYPES[dtype], shape=array.shape)
            request.raw_input_contents.append(octets(array))
        request.outputs.add(name="c")
        request.outputs.add(name="a")
        bodies.append(request.SerializeToString())
    (many,) = Formats("infer").read(bodies, asked).groups
    texts = many.form.texts(many.rows.columns, 6)
    assert texts is not None
    for number, body in enumerate(bodies):
        request = InferCall(body).decode(body, asked, max_instances=9)
        start, stop = 2 * number, 2 * number + 2
        for column, alone in zip(many.rows.columns, request.rows.columns, strict=True):
            assert same_bits(np.asarray(column)[start:stop], np.asarray(alone))
        assert texts.answer(start, stop, many.id_texts[number]) == request.encode(request.rows.columns)


def test_one_example_without_a_dimension_of_examples_is_answered_without() -> None:
    asked = one_to_one("float32")
    bodies = [infer(np.float32([k, 1]), "float32", raw=True) for k in range(3)]
    (many,) = Formats("infer").read(bodies, asked).groups
    texts = many.form.texts(many.rows.columns, 3)
    assert (many.counts, texts is None) == ([1, 1, 1], False)
    assert texts is not None
    for number, body in enumerate(bodies):
        request = InferCall(body).decode(body, asked, max_instances=9)
        assert texts.answer(number, number + 1, None) == request.encode(request.rows.columns)


def test_a_boolean_that_is_none_keeps_the_others_from_being_one_array_with_it() -> None:
    asked, formats = one_to_one("bool"), Formats("infer")
    right = infer(values_of("bool"), "bool", raw=True)
    read = formats.read([right, right[:-1] + b"\7"], asked)
    assert (read.groups, read.alone) == ([], [])
    assert formats.read([right[:-1] + b"\7"], asked).alone == []
    (many,) = formats.read([right, right], asked).groups
    assert many.counts == [2, 2]


def test_lengths_that_differ_are_rows_together() -> None:
    signature = ModelSignature(
        inputs=(TensorSignature(name="x", dtype="float32", shape=("n",)),),
        outputs=(TensorSignature(name="y", dtype="float32", shape=("n",)),),
        axes=(LengthAxis(name="n", max=4, buckets=(4,)),),
    )
    bodies = [infer(np.ones((2, n), np.float32), "float32", raw=True) for n in (1, 3, 2)]
    (many,) = Formats("infer").read(bodies, Someone(signature)).groups
    assert many.rows.lengths == [(1,), (1,), (3,), (3,), (2,), (2,)]
    assert many.form.texts(many.rows.columns, 6) is None


def test_wrong_ones_deadlines_and_too_many_rows_are_alone() -> None:
    asked, formats = one_to_one("float32"), Formats("infer")
    values = values_of("float32")
    late = infer_message(values, "float32")
    late.parameters["timeout"].int64_param = 5
    wrong = infer(np.ones((2, 3), np.float32), "float32", raw=True)
    long = infer(np.ones((9, 2), np.float32), "float32", raw=True)
    right = infer(values, "float32", raw=True)
    for _ in range(2):
        read = formats.read([late.SerializeToString(), wrong, long, right], asked, max_instances=8)
        assert (sorted(read.alone), [list(many.members) for many in read.groups]) == ([0, 1, 2], [[3]])
    assert formats.read([long], asked, max_instances=9).groups
    assert formats.read([long], asked, max_instances=8).alone == [0]


def test_another_version_answers_messages_of_a_layout_under_its_own_number() -> None:
    formats, values = Formats("infer"), values_of("float32")
    body = infer(values, "float32", raw=True)
    first, second = one_to_one("float32"), Someone(one_to_one("float32").signature, version=4)
    for asked in (first, second, first):
        (many,) = formats.read([body, body], asked).groups
        texts = many.form.texts([values], 2)
        assert texts is not None
        assert texts.answer(0, 2, None) == InferCall(body).decode(body, asked, max_instances=9).encode([values])


KNOWN = {
    "infer": infer(values_of("float32"), "float32", raw=True, id="abc"),
    "predict": predict(values_of("float32"), "float32", content=True),
}


@given(
    st.sampled_from(sorted(KNOWN)),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
)
@settings(max_examples=300)
def test_damaged_messages_are_read_as_alone_or_not_together(kind: str, changes: list[tuple[int, int]]) -> None:
    asked, formats = one_to_one("float32"), Formats(kind)
    formats.of(KNOWN[kind])
    changed = bytearray(KNOWN[kind])
    for place, octet in changes:
        changed[place % len(changed)] = octet
    body = bytes(changed)
    try:
        alone = KINDS[kind][0](body).decode(body, asked, max_instances=10)
    except ProtocolError:
        alone = None
    read = formats.read([KNOWN[kind], body], asked)
    together = [many for many in read.groups if 1 in many.members]
    assert bool(together) is (alone is not None)
    for many in together:
        place = list(many.members).index(1)
        start = sum(many.counts[:place])
        assert alone is not None
        assert many.counts[place] == alone.rows.n
        rows = np.asarray(many.rows.columns[0])[start : start + alone.rows.n]
        assert same_bits(rows, np.asarray(alone.rows.columns[0]))
        assert many.id_texts[place] == alone.id_text


@given(st.binary(max_size=60))
def test_any_bytes_have_places_or_none(body: bytes) -> None:
    try:
        found = places(body, 0, len(body))
    except ValueError:
        return
    assert all(0 <= start <= stop <= len(body) for _, start, stop in found)


def test_layouts_are_forgotten_before_there_are_too_many() -> None:
    known: KnownLayouts[int] = KnownLayouts()
    for number in range(3_000):
        known.keep(Layout(bytes(number % 700 + 9), {"x": (8, 9)}, None), number)
    assert sum(map(len, known._by_size.values())) <= 512 * 8
    assert known.find(bytes(9 + 2_999 % 700)) is not None
    known.keep(Layout(bytes(5_000), {"x": (4_000, 5_000)}, None), 1)
    assert known.find(bytes(5_000)) is None
