"""Beside the values: outputs that are asked for, ids, versions, labels, parameters, by every protocol that has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.protocol.asked import same_bits
from tests.web.conformance.asking import Asked, Protocol
from tests.web.conformance.models import Computing, Echo, ordinary
from tests.web.conformance.protocols import PROTOCOLS
from tests.web.conformance.serving import Refused, Server

by_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
WITH_FILTERS = [protocol for protocol in PROTOCOLS if protocol.has_filters]
WITH_IDS = [protocol for protocol in PROTOCOLS if protocol.has_ids]
WITH_PARAMETERS = [protocol for protocol in PROTOCOLS if protocol.has_parameters]

COMPUTING = Asked(
    "computing",
    {"image": ("float32", ordinary("float32", 2, 2, 3)), "tag": ("string", ordinary("string", 2))},
    Computing.OUTPUTS,
)


@pytest.fixture
def echo(server: Server) -> Iterator[Asked]:
    """A model of three versions, of which 2 carries a label and 3 serves."""
    for version in (1, 2, 3):
        labels = {"stable": ""} if version == 2 else {}
        server.serve(Echo("int16", (2,), name="versions", version=version), labels=labels)
    array = ordinary("int16", 3, 2)
    yield Asked("versions", {"x": ("int16", array)}, server.catalog.served["versions", 3].signature.outputs)
    for version in (1, 2, 3):
        del server.catalog.served["versions", version], server.catalog.records["versions", version]


def answered_by(server: Server) -> list[int]:
    """How often each version was asked."""
    return [len(server.catalog.served["versions", version].rows) for version in (1, 2, 3)]


@pytest.mark.parametrize("protocol", WITH_FILTERS, ids=lambda protocol: protocol.name)
@pytest.mark.parametrize("only", [("count",), ("any", "scaled"), ("reversed_bytes",), ("any", "count", "scaled")])
def test_outputs_that_are_asked_for_come_and_no_others(
    server: Server, protocol: Protocol, only: tuple[str, ...]
) -> None:
    every = protocol.ask(server, COMPUTING).outputs
    got = protocol.ask(server, replace(COMPUTING, only=only)).outputs
    assert got.keys() == set(only)
    # A map has no order; a list has that of the question.
    assert tuple(got) == only or protocol.name.startswith("tfs-grpc")
    assert all(same_bits(got[name], every[name]) for name in only)


@pytest.mark.parametrize("protocol", WITH_FILTERS, ids=lambda protocol: protocol.name)
@pytest.mark.parametrize(("only", "says"), [(("nothing",), "'nothing' is no output"), (("any", "any"), "twice")])
def test_an_output_that_is_unknown_or_asked_for_twice_is_refused(
    server: Server, protocol: Protocol, only: tuple[str, ...], says: str
) -> None:
    with pytest.raises(Refused, match=says) as refused:
        protocol.ask(server, replace(COMPUTING, only=only))
    assert refused.value.code == (400 if protocol.is_http else "INVALID_ARGUMENT")


@pytest.mark.parametrize("protocol", WITH_IDS, ids=lambda protocol: protocol.name)
@pytest.mark.parametrize(
    "id_", ["", "1", 'a "quoted" \\ id', "\u017c\u00f3\u0142w \U0001f422", "x" * 5_000, "\x7f\u2028"]
)
def test_the_id_comes_back(server: Server, protocol: Protocol, id_: str, echo: Asked) -> None:
    for _ in range(2):
        answer = protocol.ask(server, replace(echo, id=id_))
        assert answer.id == (id_ or None)
        assert same_bits(answer.outputs["y"], echo.inputs["x"][1])


@by_protocol
def test_a_version_or_a_label_chooses_who_answers(server: Server, protocol: Protocol, echo: Asked) -> None:
    for version, expected in ((None, [0, 0, 1]), (1, [1, 0, 1]), (2, [1, 1, 1]), (3, [1, 1, 2])):
        answer = protocol.ask(server, replace(echo, version=version))
        assert answered_by(server) == expected
        assert answer.version in {None, str(version or 3)}
        assert answer.model in {None, "versions"}
    if protocol.name.startswith("oip-grpc"):  # its messages have no label
        return
    protocol.ask(server, replace(echo, label="stable"))
    assert answered_by(server) == [1, 2, 2]


@pytest.mark.parametrize("protocol", WITH_PARAMETERS, ids=lambda protocol: protocol.name)
def test_priority_and_timeout_reach_the_queue(server: Server, protocol: Protocol, echo: Asked) -> None:
    model = server.catalog.served["versions", 3]
    protocol.ask(server, echo)
    protocol.ask(server, replace(echo, parameters={"priority": 1, "timeout": 1_500_000}))
    protocol.ask(server, replace(echo, parameters={"priority": 0, "timeout": 0}))
    assert model.priorities == [None, 1, None]
    # Over gRPC the caller has a deadline of its own besides.
    own_s = [None] if protocol.is_http else [pytest.approx(60, abs=1)]
    assert [model.timeouts_s[0], model.timeouts_s[2]] == own_s * 2
    assert model.timeouts_s[1] == 1.5
    for wrong in ({"priority": -1}, {"timeout": -1}, {"priority": 256}):
        with pytest.raises(Refused, match="must be a whole number from 0 to"):
            protocol.ask(server, replace(echo, parameters=wrong))


@pytest.mark.parametrize("protocol", [p for p in PROTOCOLS if p.is_http], ids=lambda protocol: protocol.name)
def test_every_http_answer_carries_a_request_id_and_says_how_it_was_batched_if_asked(
    server: Server, protocol: Protocol, echo: Asked
) -> None:
    lines = {"X-Request-Id": "mine-1", "X-Rowwise-Explain": "1", "X-Request-Timeout-Ms": "700"}
    seen: list[dict[str, str]] = []
    post = server.post

    def noting(*args: str, **options: bool) -> tuple[int, dict[str, str], bytes]:
        answer = post(*args, **options)  # type: ignore[arg-type]
        seen.append(answer[1])
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "post", noting)
        protocol.ask(server, replace(echo, headers=lines))
        protocol.ask(server, echo)
        with pytest.raises(Refused):
            protocol.ask(server, replace(echo, model="nobody", headers=lines))
    assert [headers["x-request-id"] == "mine-1" for headers in seen] == [True, False, True]
    assert all(headers["x-request-id"] for headers in seen)
    assert ["server-timing" in headers for headers in seen] == [True, False, False]
    assert "bucket=8" in seen[0]["server-timing"]
    assert server.catalog.served["versions", 3].timeouts_s == [0.7, None]


@by_protocol
def test_more_examples_than_any_bucket_are_answered_in_their_order(server: Server, protocol: Protocol) -> None:
    array = np.arange(5_000, dtype=np.int32).reshape(-1, 1)
    model = server.serve(Echo("int32", (1,), name="many"))
    asked = Asked("many", {"x": ("int32", array)}, model.signature.outputs)
    assert same_bits(protocol.ask(server, asked).outputs["y"], array)
    with pytest.raises(Refused, match="5001 examples, at most 5000 are allowed") as refused:
        protocol.ask(server, replace(asked, inputs={"x": ("int32", np.zeros((5_001, 1), np.int32))}))
    assert refused.value.code == (413 if protocol.is_http else "INVALID_ARGUMENT")
