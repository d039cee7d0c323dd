"""OpenTelemetry traces: a span for each request, linked to the span of the batch that held its rows.

Nothing here runs unless an endpoint is set, and OpenTelemetry's packages are not imported before. Whether a request is
recorded is decided by its caller's ``traceparent`` (W3C Trace Context), or by ``trace_share`` where it has none. A
batch is recorded with the first recorded request that was in it, so that links never lead nowhere.

Spans say how something ran: model, version, status, rows, bucket, padding, waiting. They hold no inputs.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from server.settings import Settings
from server.web.interfaces import Answer

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from server.web.paths import VerbPath

__all__ = ["RequestTrace", "Tracing", "start_tracing"]

#: Batches whose spans can still be linked to. The requests of one batch are answered within moments.
_BATCHES = 1_024
#: Seconds that stopping waits for spans that have not been sent.
_FLUSH_S = 2.0


def start_tracing(settings: Settings) -> Tracing | None:
    """Return what traces requests if the settings ask for it. Errors: ValueError if it is not installed."""
    return None if settings.otlp_endpoint is None else Tracing(settings.otlp_endpoint, share=settings.trace_share)


class Tracing:
    """Makes spans and sends them to an OTLP endpoint over HTTP, from a thread of its own.

    ``endpoint`` is the URL that takes traces, such as ``http://127.0.0.1:4318/v1/traces``; ``share`` is how many of the
    requests without a ``traceparent`` are recorded, from 0 to 1. Errors: ValueError if OpenTelemetry is not installed.
    """

    def __init__(self, endpoint: str, *, share: float = 1.0) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
            from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, Status, StatusCode, set_span_in_context
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise ValueError(
                f"otlp_endpoint is set and OpenTelemetry is not installed ({error.name} is missing): "
                "install rowwise[tracing], or leave the setting out"
            ) from None
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(share)),
            resource=Resource.create({"service.name": "rowwise"}),
            shutdown_on_exit=False,
        )
        self._exporter: Any = OTLPSpanExporter(endpoint=endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer: Any = self._provider.get_tracer("rowwise")
        self._read = TraceContextTextMapPropagator().extract
        self._link, self._kind, self._status, self._code = Link, SpanKind, Status, StatusCode
        self._within: Callable[[SpanContext], Any] = lambda context: set_span_in_context(NonRecordingSpan(context))
        self._batches: OrderedDict[int, SpanContext] = OrderedDict()

    def begin(self, traceparent: bytes | None, path: VerbPath, request_id: str) -> RequestTrace | None:
        """Begin the span of a request; None if it is not to be recorded."""
        parent = None
        if traceparent is not None:
            parent = self._read({"traceparent": traceparent.decode("latin-1")})
        span = self._tracer.start_span(
            path.verb,
            context=parent,
            kind=self._kind.SERVER,
            attributes={"rowwise.model": path.model, "rowwise.request_id": request_id},
        )
        return RequestTrace(self, span) if span.is_recording() else None

    def end(self, span: Any, status: int, answer: Answer | None) -> None:
        """End the span of a request, with what is known of how it ran."""
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self._status(self._code.ERROR))
        if answer is not None and answer.batch_id:
            span.set_attribute("rowwise.queue_ms", answer.queue_s * 1e3)
            span.set_attribute("rowwise.batch_id", answer.batch_id)
            span.add_link(self._batch(answer, span.get_span_context()), {})
        span.end()

    def close(self) -> None:
        """Send what is left, for a moment at most, and stop.

        The packages wait for a collector that does not answer, again and again, for most of a minute. So they are left
        to a thread that nobody waits for longer than that moment.
        """
        ending = threading.Thread(target=self._provider.shutdown, name="rowwise-spans", daemon=True)
        ending.start()
        ending.join(_FLUSH_S)
        if ending.is_alive():
            self._exporter.shutdown()  # no more attempts

    def _batch(self, answer: Answer, first: SpanContext) -> SpanContext:
        """Return the span of a batch that has just ended; it is recorded in the trace of its first request."""
        known = self._batches.get(answer.batch_id)
        if known is not None:
            return known
        ended_ns = time.time_ns()
        span = self._tracer.start_span(
            "batch",
            context=self._within(first),
            start_time=ended_ns - round(answer.compute_s * 1e9),
            attributes={
                "rowwise.batch_id": answer.batch_id,
                "rowwise.rows": answer.batch_rows,
                "rowwise.bucket": answer.bucket,
                "rowwise.padding": answer.bucket - answer.batch_rows,
                "rowwise.reason": answer.reason,
            },
        )
        span.end(ended_ns)
        context: SpanContext = span.get_span_context()
        self._batches[answer.batch_id] = context
        if len(self._batches) > _BATCHES:
            self._batches.popitem(last=False)
        return context


class RequestTrace:
    """A request that is recorded. ``end`` is called once."""

    __slots__ = ("_span", "_tracing")

    def __init__(self, tracing: Tracing, span: Any) -> None:
        self._tracing = tracing
        self._span = span

    def end(self, status: int, answer: Answer | None) -> None:
        """Say how it ended: with an HTTP status, and the answer if it got as far as a batch."""
        self._tracing.end(self._span, status, answer)
