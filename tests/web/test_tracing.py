"""Spans of requests and batches, as a collector receives them over OTLP."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed: pip install rowwise[tracing]")

from server.web.paths import VerbPath
from server.web.predict import Predictor
from server.web.status import Reply
from server.web.tracing import Tracing
from tests.web.collector import Collector, attributes
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = PARENT[:-2] + b"00"


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


def predict(
    service: Service, collector: Collector, *traceparents: bytes | None, share: float = 1.0, body: bytes | None = None
) -> list[Reply]:
    """Send a prediction for each traceparent, all answered by one batch, and flush."""
    service.catalog.serve(ScriptedModel("sum", 3))
    tracing = Tracing(collector.url, share=share)
    predictor = Predictor(service.catalog, service.metrics, max_instances=10, tracing=tracing)
    replies: list[Reply] = []
    for number, traceparent in enumerate(traceparents):
        predictor.start(
            VerbPath(model="sum", version=None, label=None, verb="predict"),
            b'{"instances": [[1, 2, 3]]}' if body is None else body,
            timeout_s=None,
            explain=False,
            request_id=f"id-{number}",
            on_reply=replies.append,
            traceparent=traceparent,
            received_s=time.monotonic(),
            caller=None,
        )
    tracing.close()
    return replies


def test_a_request_is_a_span_in_its_callers_trace_and_leads_to_its_batch(
    service: Service, collector: Collector
) -> None:
    replies = predict(service, collector, PARENT, None)
    assert [reply.status for reply in replies] == [200, 200]
    first, second = (span for span in collector.spans if span.name == "predict")
    (batch,) = (span for span in collector.spans if span.name == "batch")
    assert first.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert first.parent_span_id.hex() == "b7ad6b7169203331"
    assert second.trace_id != first.trace_id
    for span, request_id in ((first, "id-0"), (second, "id-1")):
        assert [(link.trace_id, link.span_id) for link in span.links] == [(batch.trace_id, batch.span_id)]
        assert attributes(span)["rowwise.request_id"] == request_id
        assert attributes(span)["http.response.status_code"] == 200
        assert attributes(span)["rowwise.batch_id"] == 7
    assert {name: attributes(batch)[f"rowwise.{name}"] for name in ("rows", "bucket", "padding")} == {
        "rows": 5,
        "bucket": 8,
        "padding": 3,
    }
    assert batch.end_time_unix_nano - batch.start_time_unix_nano == pytest.approx(2e6, rel=0.01)


def test_a_caller_who_does_not_record_is_not_recorded(service: Service, collector: Collector) -> None:
    predict(service, collector, NOT_SAMPLED)
    assert collector.spans == []


def test_none_of_the_others_is_recorded_with_a_share_of_none(service: Service, collector: Collector) -> None:
    predict(service, collector, None, PARENT, share=0.0)
    assert [span.parent_span_id.hex() for span in collector.spans if span.name == "predict"] == ["b7ad6b7169203331"]


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"00-0-0-01", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"])
def test_a_traceparent_that_makes_no_sense_is_as_none(service: Service, collector: Collector, garbage: bytes) -> None:
    (reply,) = predict(service, collector, garbage)
    assert reply.status == 200
    (span,) = (span for span in collector.spans if span.name == "predict")
    assert span.parent_span_id == b""


def test_a_request_that_is_refused_has_its_status_and_no_batch(service: Service, collector: Collector) -> None:
    (reply,) = predict(service, collector, PARENT, body=b"{")
    assert reply.status == 400
    (span,) = collector.spans
    assert attributes(span)["http.response.status_code"] == 400
    assert not span.links
    assert not any("instances" in str(value) for value in attributes(span).values())


def test_a_collector_that_is_away_costs_no_answer(service: Service) -> None:
    away = Collector()
    away.close()
    (reply,) = predict(service, away, PARENT)
    assert reply.status == 200


def test_a_collector_that_is_slow_costs_no_answer_and_does_not_keep_the_server_from_ending(
    service: Service, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.web.tracing._FLUSH_S", 0.1)
    service.catalog.serve(ScriptedModel("sum", 3))
    collector.answers.clear()
    tracing = Tracing(collector.url)
    predictor = Predictor(service.catalog, service.metrics, max_instances=10, tracing=tracing)
    replies: list[Reply] = []

    def ask(n: int) -> None:
        for _ in range(n):
            predictor.start(
                VerbPath(model="sum", version=None, label=None, verb="predict"),
                b'{"instances": [[1, 2, 3]]}',
                timeout_s=None,
                explain=False,
                request_id="id",
                on_reply=replies.append,
                received_s=time.monotonic(),
                caller=None,
            )

    # As many as make it send, and then more than wait to be sent: what does not fit is dropped, not waited for.
    ask(600)
    assert collector.is_asked.wait(60)
    ask(3_000)
    assert [reply.status for reply in replies] == [200] * 3_600
    tracing.close()
    assert not collector.answers.is_set(), "it ended while the collector still kept it waiting"
    collector.answers.set()
