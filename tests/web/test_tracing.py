"""Spans of requests and batches, as a collector receives them over OTLP."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed: pip install rowwise[tracing]")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from server.web.paths import VerbPath
from server.web.predict import Predictor
from server.web.status import Reply
from server.web.tracing import Tracing
from tests.web.scripted import ScriptedModel, Service

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = PARENT[:-2] + b"00"


class Collector:
    """Takes traces over HTTP."""

    def __init__(self) -> None:
        spans: list[Any] = []
        self.spans = spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                request = ExportTraceServiceRequest.FromString(body)
                spans.extend(span for of in request.resource_spans for scope in of.scope_spans for span in scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


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
