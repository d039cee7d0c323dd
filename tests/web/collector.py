"""What takes traces over OTLP/HTTP, as an OpenTelemetry collector does, and can be slow about it."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collector", "attributes"]


class Collector:
    """Takes traces over HTTP."""

    def __init__(self) -> None:
        spans: list[Any] = []
        self.spans = spans
        #: Set: it answers. A test that clears it has a collector that takes everything and says nothing.
        answers = self.answers = threading.Event()
        answers.set()
        #: Set once somebody waits for its answer.
        is_asked = self.is_asked = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                request = ExportTraceServiceRequest.FromString(body)
                is_asked.set()
                answers.wait(120)
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


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
