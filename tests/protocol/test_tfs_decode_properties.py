"""Properties of decoding that no list of cases can show."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.protocol import PredictRequest, ProtocolError
from server.protocol.tfs_buffer import BufferReader
from server.protocol.tfs_exact import ExactReader
from server.protocol.tfs_json import PredictCodec
from server.protocol.tfs_skeleton import SkeletonReader
from server.protocol.tfs_typed import TypedReader
from server.signature import LengthAxis, ModelSignature, TensorSignature

AXES = (LengthAxis(name="n", max=4, buckets=(4,)),)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint64", "bool", "string")


def model(*inputs: TensorSignature) -> ModelSignature:
    """A signature of these inputs; it has a length axis if one of them names it."""
    axes = AXES if any(not tensor.is_fixed for tensor in inputs) else ()
    return ModelSignature(inputs=inputs, outputs=(), axes=axes)


TENSORS = st.builds(
    lambda dtype, shape: TensorSignature(name="x", dtype=dtype, shape=shape),
    st.sampled_from(DTYPES),
    st.sampled_from([(), (2,), (1,), (0,), (2, 4), (4, 2), ("n",), ("n", 2), ("n", 4), (2, "n")]),
)
SIGNATURES = st.one_of(
    TENSORS.map(model),
    st.tuples(TENSORS, st.sampled_from(DTYPES)).map(
        lambda pair: model(pair[0], TensorSignature(name="other", dtype=pair[1], shape=(1,)))
    ),
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.floats(),
    st.floats(width=32),
    st.sampled_from([2**31, 2**53 + 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**25, 1.0, -0.0, 1e39, 65504.0, 65519.9]),
)
LEAVES = st.one_of(
    NUMBERS, st.booleans(), st.none(), st.text(max_size=3), st.just({"b64": "AAE="}), st.just({"b64": "*"})
)
MESSY = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4), max_leaves=12)


def fitting(tensor: TensorSignature) -> st.SearchStrategy[Any]:
    """Values that mostly fit an input, so that examples get past the first check."""
    scalar: st.SearchStrategy[Any] = {"bool": st.booleans(), "string": st.text(max_size=3)}.get(tensor.dtype, NUMBERS)
    for dim in reversed(tensor.shape):
        sizes = (dim, dim) if isinstance(dim, int) else (0, 4)
        scalar = st.lists(scalar, min_size=sizes[0], max_size=sizes[1])
    return st.one_of(scalar, scalar, scalar, MESSY)


@st.composite
def requests(draw: st.DrawFn) -> tuple[ModelSignature, bytes]:
    """A signature and a body that is nearly, or quite, a request for it."""
    signature = draw(SIGNATURES)
    n = draw(st.integers(0, 3))
    examples = [{t.name: draw(fitting(t)) for t in signature.inputs} for _ in range(n)]
    single = len(signature.inputs) == 1
    form = draw(st.sampled_from(["rows", "named rows", "columns", "bare columns", "messy"]))
    if form == "messy":
        message: Any = draw(st.one_of(MESSY, st.dictionaries(st.sampled_from(["instances", "inputs", "x"]), MESSY)))
    elif form in {"columns", "bare columns"}:
        columns = {t.name: [row[t.name] for row in examples] for t in signature.inputs}
        message = {"inputs": columns["x"] if single and form == "bare columns" else columns}
    else:
        message = {"instances": [row["x"] if single and form == "rows" else row for row in examples]}
    if isinstance(message, dict) and draw(st.integers(0, 9)) == 0:
        message["signature_name"] = draw(st.sampled_from(["serving_default", "[", None, 3]))
    return signature, json.dumps(message).encode()


def outcome(reader: Any, body: bytes) -> PredictRequest | None:
    """Return what a reader makes of a body, None if it refuses."""
    try:
        request: PredictRequest | None = reader.decode(body, max_instances=3)
    except ProtocolError:
        return None
    return request


def assert_same(left: PredictRequest, right: PredictRequest) -> None:
    """Compare two requests to the bit."""
    assert (left.row_form, left.signature_name or None) == (right.row_form, right.signature_name or None)
    assert (left.rows.n, left.rows.lengths) == (right.rows.n, right.rows.lengths)
    for ours, theirs in zip(left.rows.columns, right.rows.columns, strict=True):
        assert type(ours) is type(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            assert np.shape(a) == np.shape(b)
            assert (
                np.asarray(a).tolist() == np.asarray(b).tolist() or np.asarray(a).tobytes() == np.asarray(b).tobytes()
            )


@settings(max_examples=600, deadline=None)
@given(requests())
@example((model(TensorSignature(name="x", dtype="float32", shape=(2,))), b'{"instances":[[1,2]],"instances":[[3,4]]}'))
@example((model(TensorSignature(name="x", dtype="float32", shape=(2,))), b'{"instances":[[[],[1,2]]]}'))
@example((model(TensorSignature(name="x", dtype="float32", shape=(2, 4))), b'{"instances":[[[1,2,3],[4,5,6,7,8]]]}'))
@example((model(TensorSignature(name="x", dtype="float32", shape=("n", 4))), b'{"instances":[[[[],[1,2],3,4]]]}'))
@example((model(TensorSignature(name="x", dtype="float32", shape=())), b'{"instances":[-0, 0.1, 1e-50]}'))
def test_shortcuts_read_what_the_exact_reader_reads(case: tuple[ModelSignature, bytes]) -> None:
    signature, body = case
    exact = outcome(ExactReader(signature), body)
    for shortcut in (
        SkeletonReader.compile(signature),
        BufferReader.compile(signature),
        TypedReader.compile(signature),
    ):
        quick = None if shortcut is None else outcome(shortcut, body)
        if quick is not None:
            assert exact is not None, f"{type(shortcut).__name__} accepts what is no request"
            assert_same(quick, exact)


def test_sequences_are_read_without_python_numbers() -> None:
    reader = BufferReader.compile(model(TensorSignature(name="x", dtype="float32", shape=("n", 4))))
    assert reader is not None
    request = reader.decode(b'{"instances":[[[1,2,3,4],[5,6,7,8]],[],[[9,10,11,12]]]}', max_instances=3)
    assert request is not None
    assert request.rows.lengths == [(2,), (0,), (1,)]
    assert [row.tolist() for row in request.rows.columns[0]] == [[[1, 2, 3, 4], [5, 6, 7, 8]], [], [[9, 10, 11, 12]]]


@settings(max_examples=250, deadline=None)
@given(SIGNATURES, st.one_of(st.binary(max_size=60), requests().map(lambda case: case[1])), st.data())
def test_any_bytes_give_a_request_or_a_declared_error(
    signature: ModelSignature, body: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(body)))
    junk = data.draw(st.binary(max_size=2))
    for mutated in (body, body[:cut], body[:cut] + junk + body[cut + len(junk) :]):
        request = outcome(PredictCodec(signature), mutated)
        assert request is None or 1 <= request.rows.n <= 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_every_double_arrives_as_it_was_sent(values: list[float]) -> None:
    signature = model(TensorSignature(name="x", dtype="float64", shape=(len(values),)))
    x = PredictCodec(signature).decode(orjson.dumps({"instances": [values]}), max_instances=1).rows.columns[0]
    assert np.asarray(x).tobytes() == np.array([values]).tobytes()


def test_a_hundred_thousand_floats_make_the_round_trip() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    wide = np.random.default_rng(2).integers(0, 2**63, 100_000, dtype=np.int64).view(np.float64)
    for values in (bits[np.isfinite(bits)], wide[np.isfinite(wide)]):
        tensor = TensorSignature(name="x", dtype=values.dtype.name, shape=())
        codec = PredictCodec(ModelSignature(inputs=(tensor,), outputs=(tensor,)))
        body = codec.encode([values], row_form=True).replace(b"predictions", b"instances")
        again = codec.decode(body, max_instances=100_000).rows.columns[0]
        assert np.asarray(again).tobytes() == values.tobytes()
