"""Every dtype by every protocol in every form: what goes in comes out, bit for bit, and the same by all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from server.protocol import Array
from tests.protocol.asked import EVERY_DTYPE, same_bits
from tests.web.conformance.asking import HALVES, Answered, Asked, Protocol
from tests.web.conformance.grpc_protocols import OipGrpc
from tests.web.conformance.models import FORMS, Computing, Echo, one_example, ordinary
from tests.web.conformance.protocols import PROTOCOLS
from tests.web.conformance.serving import Refused, Server

BY_NAME = {protocol.name: protocol for protocol in PROTOCOLS}
by_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)


def echo(server: Server, dtype: str, form: str, array: Array, *, in_pieces: bool = False) -> Asked:
    """The question whose answer is ``array``."""
    model = f"{dtype}-{form}"
    outputs = server.catalog.served[model, 3].signature.outputs
    return Asked(model, {"x": (dtype, array)}, outputs, in_pieces=in_pieces)


def carried(protocol: Protocol, dtype: str) -> Iterator[tuple[str, Array]]:
    """The forms that a protocol has a place for, with their values."""
    for form, described in FORMS.items():
        array = described.values(dtype)
        if protocol.carries(dtype, described.shape, n=len(array)):
            yield form, array


@by_protocol
@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_values_come_back_bit_for_bit(server: Server, protocol: Protocol, dtype: str) -> None:
    for form, array in carried(protocol, dtype):
        asked = echo(server, dtype, form, array)
        # The second request of a head and of a form is read by what was kept of the first.
        for _ in range(2):
            got = protocol.ask(server, asked).outputs["y"]
            assert same_bits(got, array), (form, got, array)
        assert [rows.n for rows in server.catalog.served[asked.model, 3].rows[-2:]] == [len(array)] * 2
        if protocol.is_http:
            got = protocol.ask(server, echo(server, dtype, form, array, in_pieces=True)).outputs["y"]
            assert same_bits(got, array), (form, got, array)


def test_the_matrix_is_whole() -> None:
    places = [(p, dtype, form) for p in PROTOCOLS for dtype in EVERY_DTYPE for form, _ in carried(p, dtype)]
    assert len(PROTOCOLS) * len(EVERY_DTYPE) * len(FORMS) == 1_680
    # Without: halves in JSON and in typed contents; strings, zero sizes and several lengths as nothing but bytes.
    assert len(places) == 1_680 - 3 * len(HALVES) * len(FORMS) - len(FORMS) - (len(EVERY_DTYPE) - 1) * 4


@pytest.mark.parametrize("name", ["oip-grpc-raw", "oip-grpc-contents"])
def test_a_stream_answers_every_dtype_and_form_as_calls_do_and_goes_on_after_a_mistake(
    server: Server, name: str
) -> None:
    protocol = BY_NAME[name]
    assert isinstance(protocol, OipGrpc)
    asked, expected = [], []
    for dtype in EVERY_DTYPE:
        for form, array in carried(protocol, dtype):
            asked.append(replace(echo(server, dtype, form, array), id=f"{dtype} {form}"))
            expected.append(array)
    wrong = replace(asked[0], inputs={"z": asked[0].inputs["x"]})
    *answers, refused, again = protocol.ask_in_stream(server, [*asked, wrong, asked[0]])
    for each, answer, array in zip([*asked, asked[0]], [*answers, again], [*expected, expected[0]], strict=True):
        assert isinstance(answer, Answered), (each.id, answer)
        assert answer.id == each.id
        assert same_bits(answer.outputs["y"], array), each.id
    assert isinstance(refused, str)
    assert "'z'" in refused


@by_protocol
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_bits_of_nan_are_kept_where_a_protocol_has_bits(server: Server, protocol: Protocol, dtype: str) -> None:
    array = FORMS["limits"].values(dtype)[:1].copy()
    if not protocol.carries(dtype, (2,), n=1):
        return
    bits = array.view(f"u{array.dtype.itemsize}")
    bits[0, 0] ^= 5 | 1 << (8 * array.dtype.itemsize - 1)
    got = protocol.ask(server, echo(server, dtype, "limits", array)).outputs["y"]
    assert same_bits(got, array) or (not protocol.keeps_nan_bits() and np.isnan(got[0, 0].astype(np.float64)))


@pytest.mark.parametrize(
    ("protocol", "dtype", "says"),
    [
        *[(name, half, "has no form in JSON") for name in ("oip-json-flat", "oip-json-nested") for half in HALVES],
        *[("oip-grpc-contents", half, "has no typed contents") for half in HALVES],
        ("oip-raw", "string", "takes several byte strings"),
    ],
)
def test_what_a_protocol_has_no_form_for_is_refused_with_a_sentence(
    server: Server, protocol: str, dtype: str, says: str
) -> None:
    assert not BY_NAME[protocol].carries(dtype, (2,), n=1)
    with pytest.raises(Refused, match=says) as refused:
        BY_NAME[protocol].ask(server, echo(server, dtype, "limits", FORMS["limits"].values(dtype)))
    assert refused.value.code in {400, "INVALID_ARGUMENT"}


@by_protocol
@pytest.mark.parametrize("n", [1, 2, 7])
def test_answers_are_those_of_one_example_after_another(server: Server, protocol: Protocol, n: int) -> None:
    images, tags = ordinary("float32", n, 2, 3, seed=n), ordinary("string", n)
    asked = Asked("computing", {"image": ("float32", images), "tag": ("string", tags)}, Computing.OUTPUTS)
    if not protocol.has_names:
        with pytest.raises(Refused, match="for models with one input, this one has 2"):
            protocol.ask(server, asked)
        return
    got = protocol.ask(server, asked).outputs
    assert got.keys() == asked.wanted.keys()
    for row in range(n):
        alone = one_example({"image": images[row], "tag": tags[row : row + 1]})
        for name, expected in alone.items():
            assert same_bits(got[name][row : row + 1], expected), name


#: What takes seconds, mostly the client's, and is as another: digits of as many numbers as bytes; other JSON.
SLOW = {("uint8", name) for name in BY_NAME if "raw" not in name and "binary" not in name}
SLOW |= {("float32", name) for name in ("tfs-rest-columns", "oip-json-flat", "oip-json-nested")}
LARGE = [(dtype, name) for name in BY_NAME for dtype in ("float32", "uint8", "string")]


@pytest.mark.parametrize(
    ("dtype", "protocol"), [pytest.param(*each, marks=[pytest.mark.long] if each in SLOW else []) for each in LARGE]
)
def test_tensors_of_16_mib_pass(server: Server, protocol: str, dtype: str) -> None:
    if dtype == "string":
        array = np.array([[b"\0" * 2**22, b"\xff" * 2**22], [b"x" * 2**22, "\u00e9".encode() * 2**21]], object)
    else:
        # Of few digits: with 17 each, as clients write float32, they are over max_body_bytes in JSON.
        array = np.random.default_rng(0).integers(0, 256, (2**11, 2**13 // np.dtype(dtype).itemsize)).astype(dtype)
    if BY_NAME[protocol].carries(dtype, (2,), n=1):
        model = server.serve(Echo(dtype, array.shape[1:], name="wide"))
        got = BY_NAME[protocol].ask(server, Asked("wide", {"x": (dtype, array)}, model.signature.outputs))
        assert same_bits(got.outputs["y"], array)
