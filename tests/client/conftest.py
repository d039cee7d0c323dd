"""A server's double, spoken to in memory or over a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

import rowwise

JSON = {"Content-Type": "application/json"}
CERTIFICATE = {
    "format_version": 1,
    "function": "predict",
    "tensorflow_version": "2.21.0",
    "ops": [
        {"op": "MatMul", "kind": "vectorized", "count": 3, "where": ["digits.py:9"], "reason": None},
        {"op": "ReadVariableOp", "kind": "invariant", "count": 6, "where": ["digits.py:9"], "reason": None},
        {
            "op": "NonMaxSuppressionV3",
            "kind": "looped",
            "count": 1,
            "where": [f"digits.py:{line}" for line in (4, 5, 6, 7, 8)],
            "reason": "no converter [v3]",
        },
    ],
    "loops_unbatched": 0,
    "loops_batched": 1,
    "parity": [
        {
            "rows": rows,
            "lengths": [],
            "n_examples": rows,
            "outputs": [
                {"name": "output", "max_abs": 1.5e-7, "max_relative": 3e-7, "max_ulp": 2, "bitwise_equal": rows == 1}
            ],
        }
        for rows in (1, 8)
    ],
    "n_probes_refused": 0,
    "tolerance": {"float32": 1e-5},
    "summary": {"vectorized": 3, "invariant": 6, "looped": 1, "buckets_checked": 2, "max_abs": 1.5e-7},
}
_MODE = {"compiler": "graph", "executor": "single_threaded", "intra_op_threads": 1}
COSTS = {
    "format_version": 1,
    "entries": {
        "predict": [
            {"rows": rows, "lengths": [], "cost_s": cost_s, **_MODE, "executor": executor, "chosen": chosen}
            for rows, best_s in ((64, 118e-6), (1, 12e-6), (8, 24e-6))
            for executor, cost_s, chosen in (("single_threaded", best_s, True), ("default", 3 * best_s, False))
        ]
    },
}


class ScriptedServer:
    """Answers as a Rowwise server does; ``script`` holds the answers that go before, ``requests`` what came.

    It holds two models: ``double`` (float32 ``x`` of any shape -> ``output``) and ``describe`` (``text`` and
    ``times`` -> ``upper`` and ``count``). A registration passes through ``states``, one a poll.
    """

    def __init__(self) -> None:
        self.token: str | None = None
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.script: list[tuple[int, dict[str, str], bytes]] = []
        self.states: list[dict[str, Any]] = [
            {"state": "BUILDING", "progress": {"stage": "vectorize", "done": 1, "total": 7}},
            {"state": "BUILT"},
            {"state": "LOADING"},
            {"state": "AVAILABLE"},
        ]
        self.status_host = ""
        self.output_dtype = "DT_FLOAT"

    def paths(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.requests]

    def last_parts(self) -> dict[str, tuple[str | None, bytes]]:
        """Return the parts of the last multipart upload: name -> (file name, content)."""
        _, _, headers, body = next(r for r in reversed(self.requests) if r[0] == "PUT")
        head = f"Content-Type: {headers['content-type']}\r\n\r\n".encode()
        message = message_from_bytes(head + body, policy=policy.HTTP)
        return {
            part.get_param("name", header="content-disposition"): (
                part.get_filename(),
                part.get_payload(decode=True),
            )
            for part in message.iter_parts()
        }

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.requests.append((method, path, headers, body))
        if self.script:
            return self.script.pop(0)
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            return _error(401, "a token is needed: send Authorization: Bearer TOKEN")
        match method, path.removeprefix("/v1/models").strip("/").split("/"):
            case "GET", [""]:
                return _json(200, {"models": [self._record("double", 2, "AVAILABLE", active=True), self._failed()]})
            case "GET", [("double" | "describe") as name, *_, "metadata"]:
                return _json(200, {"model_spec": {"name": name}, "metadata": {"signature_def": self._signature(name)}})
            case "GET", ["double", "versions", "2", "certificate"]:
                return _json(200, CERTIFICATE)
            case "GET", ["double", "versions", "2", "costs"]:
                return _json(200, COSTS)
            case "GET", [name, "versions", "7", "status"]:
                step = self.states.pop(0) if len(self.states) > 1 else self.states[0]
                return _json(200, {"model": name, "version": 7, "reason": "", "progress": None, **step})
            case "PUT", [name]:
                url = f"{self.status_host}/v1/models/{name}/versions/7/status"
                return _json(202, {"model": name, "version": 7, "state": "BUILDING", "status_url": url})
            case "POST", ["double:predict"] | ["double", "versions", "2:predict"]:
                return self._double(json.loads(body))
            case "POST", ["describe:predict"]:
                return self._describe(json.loads(body))
            case "POST", ["double", "versions", "2:activate"]:
                return _json(200, self._record("double", 2, "AVAILABLE", active=True))
            case "DELETE", ["double", *_]:
                return 204, {}, b""
            case "GET", [*_] if path == "/v2/health/ready":
                return _json(200, {"ready": True})
        return self._others(method, path, body)

    def _others(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        match method, path.removeprefix("/v1/models").strip("/").split("/"):
            case "GET", [("double" | "describe") as name, "labels"]:
                return _json(200, {"labels": {"stable": 2} if name == "double" else {}})
            case "POST", [*_] if path == "/v2/repository/models/double/unload":
                return _json(200, {"name": "double", "state": "UNAVAILABLE"})
            case "GET", ["pixels", *_, "metadata"]:
                return _json(200, {"metadata": {"signature_def": self._pixels()}})
            case "POST", ["pixels:predict"]:
                given = json.loads(body)["instances"]
                return _json(200, {"predictions": [{"output": each, "note": "as sent"} for each in given]})
        return _error(404, f"there is no {path}")

    def _record(self, name: str, version: int, state: str, **more: Any) -> dict[str, Any]:
        return {"model": name, "version": version, "state": state, "reason": "", "active": False, "labels": {}, **more}

    def _failed(self) -> dict[str, Any]:
        return self._record("ranker", 1, "FAILED", reason="op Unique [Unique] has no converter")

    def _signature(self, name: str) -> dict[str, Any]:
        tensor = {"tensor_shape": {"dim": [], "unknown_rank": True}, "name": "t:0"}
        inputs, outputs = {
            "double": ({"x": "DT_FLOAT"}, {"output": self.output_dtype}),
            "describe": ({"text": "DT_STRING", "times": "DT_INT32"}, {"upper": "DT_STRING", "count": "DT_INT64"}),
        }[name]
        described = {
            "inputs": {key: {"dtype": dtype, **tensor} for key, dtype in inputs.items()},
            "outputs": {key: {"dtype": dtype, **tensor} for key, dtype in outputs.items()},
            "method_name": "tensorflow/serving/predict",
        }
        return {"signature_def": {"serving_default": described}}

    #: What an example of the model ``pixels`` is, which gives it back.
    pixels: tuple[str, list[int]] = ("DT_FLOAT", [2, 3])

    def _pixels(self) -> dict[str, Any]:
        dtype, shape = self.pixels
        sizes = [{"size": str(size)} for size in (-1, *shape)]
        tensor = {"dtype": dtype, "tensor_shape": {"dim": sizes, "unknown_rank": False}, "name": "t:0"}
        # With text beside them its answers can't be binary.
        outputs = {"output": tensor, "note": {**tensor, "dtype": "DT_STRING"}}
        return {"signature_def": {"serving_default": {"inputs": {"image": tensor}, "outputs": outputs}}}

    def _double(self, request: Any) -> tuple[int, dict[str, str], bytes]:
        def doubled(value: Any) -> Any:
            return [doubled(entry) for entry in value] if isinstance(value, list) else 2 * value

        if not all(isinstance(each, (int, float, list)) for each in request["instances"]):
            return _error(400, "input 'x' of instance 0: expected float32")
        return _json(200, {"predictions": [doubled(each) for each in request["instances"]]})

    def _describe(self, request: Any) -> tuple[int, dict[str, str], bytes]:
        rows = [
            {"upper": each["text"].upper() * each["times"], "count": len(each["text"])} for each in request["instances"]
        ]
        return _json(200, {"predictions": rows})


def _json(status: int, value: Any) -> tuple[int, dict[str, str], bytes]:
    return status, dict(JSON), json.dumps(value).encode()


def _error(status: int, sentence: str) -> tuple[int, dict[str, str], bytes]:
    return _json(status, {"error": sentence})


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


@pytest.fixture
def client(server: ScriptedServer) -> Iterator[rowwise.Client]:
    """A client whose requests never leave the process."""

    def handle(request: httpx.Request) -> httpx.Response:
        headers = {key.lower(): value for key, value in request.headers.items()}
        path = request.url.raw_path.decode()
        status, answer_headers, body = server.answer(request.method, path, headers, request.read())
        return httpx.Response(status, headers=answer_headers, content=body)

    transport = httpx.MockTransport(handle)
    with rowwise.Client("http://rowwise.test", progress=False, retries=0, transport=transport) as made:
        yield made


@pytest.fixture
def url(server: ScriptedServer) -> Iterator[str]:
    """The address of the double, on a real socket."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self._body()
            headers = {key.lower(): value for key, value in self.headers.items()}
            status, answer_headers, content = server.answer(self.command, self.path, headers, body)
            self.send_response(status)
            for key, value in {**answer_headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content)

        def _body(self) -> bytes:
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                raise AssertionError("uploads carry their length, so that a server can refuse them unread")
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        do_GET = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()
