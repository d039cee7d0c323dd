"""What went wrong elsewhere, by its symptom, which must not be seen here: on every protocol, over real sockets."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.protocol.asked import same_bits
from tests.web.conformance.asking import HALVES, Asked, Protocol
from tests.web.conformance.models import FORMS, Computing, Echo, ordinary
from tests.web.conformance.protocols import PROTOCOLS
from tests.web.conformance.serving import Refused, Server

BY_NAME = {protocol.name: protocol for protocol in PROTOCOLS}
by_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)


def echoed(server: Server, protocol: Protocol, dtype: str, form: str, array: np.ndarray) -> np.ndarray:
    model = f"{dtype}-{form}"
    outputs = server.catalog.served[model, 3].signature.outputs
    return protocol.ask(server, Asked(model, {"x": (dtype, array)}, outputs)).outputs["y"]


@by_protocol
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_gives_invalid_json_or_500(server: Server, protocol: Protocol, dtype: str) -> None:
    array = np.array([[np.nan, np.inf], [-np.inf, -0.0]], dtype)
    assert same_bits(echoed(server, protocol, dtype, "limits", array), array)


@pytest.mark.parametrize("name", ["tfs-rest-rows", "oip-json-flat", "oip-binary", "oip-grpc-raw"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_rounded_or_refused(server: Server, name: str, dtype: str) -> None:
    bits = np.dtype(dtype.replace("float", "uint"))
    random = np.random.default_rng(45).integers(0, np.iinfo(bits).max, 100_000, bits, endpoint=True).view(dtype)
    array = np.where(np.isfinite(random), random, 1).astype(dtype).reshape(10, 10_000)
    model = server.serve(Echo(dtype, (10_000,), name=f"many-{dtype}"))
    asked = Asked(model.name, {"x": (dtype, array)}, model.signature.outputs)
    assert same_bits(BY_NAME[name].ask(server, asked).outputs["y"], array)


@by_protocol
@pytest.mark.parametrize("dtype", sorted(HALVES))
def test_half_and_bfloat16_are_garbled(server: Server, protocol: Protocol, dtype: str) -> None:
    array = FORMS["limits"].values(dtype)
    if protocol.carries(dtype, (2,), n=len(array)):
        assert same_bits(echoed(server, protocol, dtype, "limits", array), array)
        return
    with pytest.raises(Refused, match=r"binary|raw") as refused:
        echoed(server, protocol, dtype, "limits", array)
    assert refused.value.code in {400, "INVALID_ARGUMENT"}


@pytest.mark.parametrize("name", ["oip-grpc-raw", "tfs-grpc-content", "oip-binary"])
def test_a_message_of_more_than_4_mb_is_refused(server: Server, name: str) -> None:
    array = ordinary("float32", 1, 2**22)
    model = server.serve(Echo("float32", (2**22,), name="wide"))
    asked = Asked("wide", {"x": ("float32", array)}, model.signature.outputs)
    assert same_bits(BY_NAME[name].ask(server, asked).outputs["y"], array)
    too_large = Asked("wide", {"x": ("float32", ordinary("float32", 5, 2**22))}, model.signature.outputs)
    with pytest.raises(Refused, match="max_body_bytes") as refused:
        BY_NAME[name].ask(server, too_large)
    assert refused.value.code in {413, "RESOURCE_EXHAUSTED"}


@by_protocol
@pytest.mark.parametrize("form", ["zero-size", "zero-size-inside"])
def test_a_zero_size_output_is_an_error(server: Server, protocol: Protocol, form: str) -> None:
    if not protocol.carries("float32", FORMS[form].shape, n=2):
        return  # nothing but bytes can't say how many examples of no size there are
    array = FORMS[form].values("float32")
    assert echoed(server, protocol, "float32", form, array).shape == array.shape


@by_protocol
def test_more_instances_than_the_largest_batch_are_an_error(server: Server, protocol: Protocol) -> None:
    array = FORMS["thousand"].values("int32")
    model = server.catalog.served["int32-thousand", 3]
    assert len(array) == 1_000 > max(model.batch_sizes)
    assert same_bits(echoed(server, protocol, "int32", "thousand", array), array)


@by_protocol
@pytest.mark.parametrize("n", [1, 3])
def test_scalar_inputs_can_not_be_batched(server: Server, protocol: Protocol, n: int) -> None:
    array = FORMS["scalars"].values("float64")[:n]
    assert same_bits(echoed(server, protocol, "float64", "scalars", array), array)


@pytest.mark.parametrize("path", ["/v1/models/computing:predict", "/v2/models/computing/infer"])
def test_malformed_json_is_500_or_200(server: Server, path: str) -> None:
    deep = 20_000
    for body in (
        b"",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b"[" * deep,
        b"[" * deep + b"]" * deep,
        b'{"instances": ' + b"[" * deep + b"]" * deep + b"}",
        b'{"inputs": ' + b'{"a":' * deep + b"1" + b"}" * deep + b"}",
        b'{"inputs": [{"name": ' + b"[" * deep,
    ):
        for in_pieces in (False, True):
            status, headers, answer = server.post(path, body, in_pieces=in_pieces)
            assert status in {400, 413}, (body[:20], status)
            assert headers["content-type"] == "application/json"
            assert list(json.loads(answer)) == ["error"]


@by_protocol
def test_a_batch_is_split_by_the_shape_that_was_declared_and_not_by_the_real_one(
    server: Server, protocol: Protocol
) -> None:
    if protocol.name == "oip-raw":
        return  # nothing is declared there but by the model
    right = FORMS["matrices"].values("float32")
    for wrong in (right[:, :2], right[:, :, :3], right.reshape(7, 4, 3)):
        with pytest.raises(Refused) as refused:
            echoed(server, protocol, "float32", "matrices", wrong)
        assert refused.value.code in {400, "INVALID_ARGUMENT"}
        assert same_bits(echoed(server, protocol, "float32", "matrices", right), right)


@pytest.mark.parametrize("declared", [[4, 2], [1, 2], [2, 3], [-2, 2], [2**62, 2]])
def test_a_declared_shape_that_disagrees_with_its_data_splits_the_batch(server: Server, declared: list[int]) -> None:
    tensor = {"name": "x", "shape": declared, "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}
    status, _, body = server.post("/v2/models/float32-limits/infer", json.dumps({"inputs": [tensor]}).encode())
    assert status in {400, 413}
    assert "x" in json.loads(body)["error"]
    array = np.float32([[1, 2], [3, 4]])
    assert same_bits(echoed(server, BY_NAME["oip-json-flat"], "float32", "limits", array), array)


def test_outputs_or_parameters_are_lost_when_requests_with_other_filters_share_a_batch(server: Server) -> None:
    """The second time their heads are known, so that they are read and admitted together."""
    protocol = BY_NAME["oip-json-flat"]
    image, tag = ordinary("float32", 1, 2, 3), ordinary("string", 1)
    asked = Asked("computing", {"image": ("float32", image), "tag": ("string", tag)}, Computing.OUTPUTS)
    every = protocol.ask(server, asked).outputs
    bodies: list[bytes] = []
    post = server.post
    wanted = [tuple(every)[:1], (), tuple(every)[-1:], tuple(every)[::-1]] * 4

    def keep(_path: str, body: bytes, *_headers: str, in_pieces: bool = False) -> tuple[int, dict[str, str], bytes]:
        bodies.append(body)
        raise Refused(0, "only the bytes are wanted", {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "post", keep)
        for number, only in enumerate(wanted):
            with pytest.raises(Refused):
                protocol.ask(server, replace(asked, only=only, id=f"id-{number}"))
    assert server.post == post
    for _ in range(2):
        answers = server.together("/v2/models/computing/infer", bodies)
        for number, (only, (status, _, body)) in enumerate(zip(wanted, answers, strict=True)):
            answer = json.loads(body)
            assert (status, answer["id"]) == (200, f"id-{number}")
            assert [output["name"] for output in answer["outputs"]] == list(only or every)
