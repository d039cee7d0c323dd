"""The same mistake gets the same code by every protocol, a sentence that says where it is, and harms nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from server.errors import RowwiseError
from server.protocol.messages import message_class
from server.web.status import STATUS
from tests.protocol.asked import same_bits
from tests.web.conformance.asking import Asked, Protocol
from tests.web.conformance.models import Echo, ordinary
from tests.web.conformance.protocols import PROTOCOLS
from tests.web.conformance.serving import Refused, Server

#: The codes that the contract names and those of HTTP itself, and what gRPC has instead of them.
CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "FAILED_PRECONDITION",
    413: "RESOURCE_EXHAUSTED",
    414: "INVALID_ARGUMENT",
    415: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
    431: "INVALID_ARGUMENT",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    505: "UNIMPLEMENTED",
    507: "RESOURCE_EXHAUSTED",
}
#: "Try again later" does not make a request smaller.
TOO_MANY = {"TooManyInstances", "TooManyRows"}

by_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)


@pytest.fixture
def right(server: Server) -> Iterator[Asked]:
    """A question that is right, before and after the mistake."""
    model = server.serve(Echo("int8", (2,), name="strict"))
    asked = Asked("strict", {"x": ("int8", ordinary("int8", 3, 2))}, model.signature.outputs)
    yield asked
    model.refusal = None
    assert same_bits(PROTOCOLS[0].ask(server, asked).outputs["y"], asked.inputs["x"][1])


def sends(dtype: str, array: Any, name: str = "x") -> Callable[[Asked], Asked]:
    """The same question with other values."""
    return lambda right: replace(right, inputs={name: (dtype, np.asarray(array, dtype))})


def two(right: Asked) -> Asked:
    return replace(right, inputs={**right.inputs, "z": right.inputs["x"]})


#: Mistakes, the code of each, and what its sentence says.
MISTAKES: dict[str, tuple[Callable[[Asked], Asked], int, str]] = {
    "an unknown model": (lambda right: replace(right, model="nobody"), 404, "model 'nobody'"),
    "an unknown version": (lambda right: replace(right, version=99), 404, "99"),
    "too long an example": (sends("int8", [[1, 2, 3]]), 400, "'x'"),
    "a dimension too many": (sends("int8", [[[1, 2]]]), 400, "'x'"),
    "another dtype": (sends("float32", [[1.5, 2]]), 400, "'x'"),
    "no examples": (sends("int8", np.zeros((0, 2))), 400, "example"),
    "another name": (sends("int8", [[1, 2]], name="z"), 400, "'z'"),
    "a name too many": (two, 400, "'z'"),
}
#: Bytes alone say no dtype, no name and no dimensions.
UNSAID = {"a dimension too many", "another name", "another dtype", "a name too many"}
#: One input needs no name in these.
NAMELESS = {"tfs-rest-rows", "tfs-rest-columns"}


@by_protocol
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_one_code_by_all_protocols(
    server: Server, protocol: Protocol, mistake: str, right: Asked
) -> None:
    make, status, says = MISTAKES[mistake]
    asked = make(right)
    if (protocol.name == "oip-raw" and mistake in UNSAID) or (protocol.name in NAMELESS and mistake == "another name"):
        return
    n_before = len(server.catalog.served["strict", 3].rows)
    with pytest.raises(Refused) as refused:
        protocol.ask(server, asked)
    assert refused.value.code == (status if protocol.is_http else CODES[status])
    if protocol.name != "oip-raw":
        assert says in refused.value.sentence
    assert len(server.catalog.served["strict", 3].rows) == n_before


@by_protocol
@pytest.mark.parametrize("value", [128, -129, 2**31 - 1])
def test_an_integer_out_of_range_is_refused_where_the_form_can_say_it(
    server: Server, protocol: Protocol, value: int, right: Asked
) -> None:
    if protocol.name in {"oip-binary", "oip-raw", "oip-grpc-raw", "tfs-grpc-content"}:
        return
    wide = replace(right, inputs={"x": ("int8", np.array([[1, value]], np.int32))})
    with pytest.raises(Refused, match="'x'") as refused:
        protocol.ask(server, wide)
    assert refused.value.code == (400 if protocol.is_http else "INVALID_ARGUMENT")


@by_protocol
def test_a_boolean_that_is_neither_0_nor_1_is_refused_where_it_is_a_byte(server: Server, protocol: Protocol) -> None:
    if protocol.name in {"oip-binary", "oip-raw", "oip-grpc-raw", "tfs-grpc-content"}:
        model = server.serve(Echo("bool", (2,), name="strict"))
        twos = np.array([[0, 2]], np.uint8).view(np.bool_)
        with pytest.raises(Refused, match=r"'x': a boolean is one byte, 0 or 1") as refused:
            protocol.ask(server, Asked("strict", {"x": ("bool", twos)}, model.signature.outputs))
        assert refused.value.code == (400 if protocol.is_http else "INVALID_ARGUMENT")


def errors() -> list[type[RowwiseError]]:
    return sorted(STATUS, key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("protocol", [PROTOCOLS[0], PROTOCOLS[4], PROTOCOLS[6], PROTOCOLS[8]], ids=lambda p: p.name)
def test_every_error_of_the_server_has_its_code_its_sentence_and_when_to_try_again(
    server: Server, protocol: Protocol, right: Asked
) -> None:
    model = server.catalog.served["strict", 3]
    for kind in errors():
        made: Any = type(kind.__name__, (kind,), {"__init__": Exception.__init__})
        error = made("what is wrong \u2014 and what to do")
        error.allow, error.details, error.retry_after_s = ("POST",), {}, 1.2
        model.refusal = error
        with pytest.raises(Refused) as refused:
            protocol.ask(server, right)
        status = STATUS[kind]
        expected: int | str = status
        if not protocol.is_http:
            expected = "INVALID_ARGUMENT" if kind.__name__ in TOO_MANY else CODES[status]
        assert (refused.value.code, refused.value.sentence) == (expected, str(error)), kind
        assert refused.value.headers.get("retry-after") == ("2" if status in {429, 503} else None), kind
        assert refused.value.headers["x-request-id"]
    model.refusal = RuntimeError("secret")
    with pytest.raises(Refused) as refused:
        protocol.ask(server, right)
    assert refused.value.code == (500 if protocol.is_http else "INTERNAL")
    assert "secret" not in refused.value.sentence
    assert refused.value.headers["x-request-id"] in refused.value.sentence


GARBAGE = {
    "nothing": b"",
    "half of an object": b'{"instances": [[1',
    "no JSON": b"\xff\xfe\x00",
    "JSON of another form": b"[1, 2]",
    "a number": b"1",
    "nesting": b"[" * 20_000 + b"]" * 20_000,
    "nesting in its place": b'{"instances": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "nesting in the other's place": b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "INT8", "data": '
    + b"[" * 20_000
    + b"]" * 20_000
    + b"}]}",
    "an enormous number": b'{"instances": [[1, ' + b"9" * 10_000 + b"]]}",
    "two forms": b'{"instances": [[1, 2]], "inputs": [[1, 2]]}',
    "null": b'{"instances": null, "inputs": null}',
    "a point": b'{"instances": [[1.0, 2]]}',
    "an unknown signature": b'{"signature_name": "other", "instances": [[1, 2]]}',
}


@pytest.mark.parametrize("path", ["/v1/models/strict:predict", "/v2/models/strict/infer"])
@pytest.mark.parametrize("what", GARBAGE)
def test_bytes_that_are_no_request_are_400_with_a_sentence(server: Server, path: str, what: str, right: Asked) -> None:
    for in_pieces in (False, True):
        status, headers, body = server.post(path, GARBAGE[what], in_pieces=in_pieces)
        assert (status, headers["content-type"]) == (400, "application/json")
        assert len(json.loads(body)["error"]) < 1_000


@pytest.mark.parametrize(
    "method", ["inference.GRPCInferenceService/ModelInfer", "tensorflow.serving.PredictionService/Predict"]
)
@pytest.mark.parametrize("body", [b"", b"\xff", b"\x0a\xff", b"\x0b" * 50, b"\x0a\x06strict" * 3_000])
def test_bytes_that_are_no_message_are_refused_with_a_sentence(
    server: Server, method: str, body: bytes, right: Asked
) -> None:
    with pytest.raises(Refused) as refused:
        server.call(f"/{method}", body, "inference.ModelInferResponse")
    assert refused.value.code in {"INVALID_ARGUMENT", "NOT_FOUND"}
    assert refused.value.sentence


@pytest.mark.parametrize("version", ["x", "0", "-1", "1.5", "9" * 30, "%20"])
def test_a_version_that_is_no_number_is_400(server: Server, version: str, right: Asked) -> None:
    for path in (f"/v1/models/strict/versions/{version}:predict", f"/v2/models/strict/versions/{version}/infer"):
        status, _, body = server.post(path, b"{}")
        assert (status, "is no version number" in json.loads(body)["error"]) == (400, True)
    request = message_class("inference.ModelInferRequest")(model_name="strict", model_version=version)
    with pytest.raises(Refused, match="is no version number"):
        server.call("/inference.GRPCInferenceService/ModelInfer", request, "inference.ModelInferResponse")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes small bodies."""
    with Server(tmp_path_factory.mktemp("uploads"), max_body_bytes=10_000) as found:
        yield found


@by_protocol
def test_a_body_over_the_limit_names_the_setting(small: Server, protocol: Protocol) -> None:
    model = small.serve(Echo("float64", (3_000,), name="strict"))
    asked = Asked("strict", {"x": ("float64", ordinary("float64", 1, 3_000))}, model.signature.outputs)
    for in_pieces in (False, True) if protocol.is_http else (False,):
        with pytest.raises(Refused, match=r"over the limit of 10000 bytes \(max_body_bytes\)") as refused:
            protocol.ask(small, replace(asked, in_pieces=in_pieces))
        assert refused.value.code == (413 if protocol.is_http else "RESOURCE_EXHAUSTED")
    status, _, body = small.post("/v1/models/strict:predict", b"{}")
    assert (status, "error" in json.loads(body)) == (400, True)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that wants a token for everything."""
    directory = tmp_path_factory.mktemp("uploads")
    with Server(directory, protect_predict=True, token="open sesame") as found:
        yield found


@by_protocol
def test_who_has_no_token_is_401(closed: Server, protocol: Protocol) -> None:
    model = closed.serve(Echo("uint8", (2,), name="strict"))
    asked = Asked("strict", {"x": ("uint8", ordinary("uint8", 2, 2))}, model.signature.outputs)
    for given in ({}, {"authorization": "Bearer wrong"}):
        with pytest.raises(Refused, match="token") as refused:
            protocol.ask(closed, replace(asked, headers=given))
        assert refused.value.code == (401 if protocol.is_http else "UNAUTHENTICATED")
    assert not model.rows
    for given in ({"authorization": "Bearer open sesame"}, {"x-api-key": "open sesame"}):
        got = protocol.ask(closed, replace(asked, headers=given))
        assert same_bits(got.outputs["y"], asked.inputs["x"][1])
