"""Connections of HTTP/1.1 as a target: valid ones in every shape that the server reads, and how answers compare."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from server.web import HotLaneProtocol
from tests.fuzz_codecs.connections import Connections
from tests.web.sockets import request

__all__ = ["Http"]

_STATUSES = {200, 202, 204, 400, 401, 403, 404, 405, 408, 409, 413, 414, 415, 429, 431, 501, 503, 504, 505}
_JSON_ONE = b'{"instances":[[1,2,3]]}'
_OIP_ONE = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}).encode()
_OIP_BINARY = b'{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","parameters":{"binary_data_size":12}}]}'
#: How the answer begins after which nothing is read.
_UNREAD = b'{"error": "this is no request of HTTP/1.1 that can be read in one way only'


def _n_before_unread(told: list[tuple[int, bytes]]) -> int:
    """Return how many answers came before the one that says that nothing more can be read: that is the last one."""
    is_last_unread = bool(told) and told[-1][1].startswith(_UNREAD)
    return len(told) - is_last_unread


def _post(path: str, body: bytes, *lines: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"POST {path} HTTP/1.1", "Host: a", *lines))
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Http(Connections):
    """HTTP/1.1: the parser, heads that were seen before, the hot lane and what is beside it."""

    name = "http"

    def start(self) -> None:
        super().start()
        config = uvicorn.Config(self.front, ws="none", lifespan="off", log_config=None)
        config.load()
        self._state = ServerState()
        self._make = partial(
            HotLaneProtocol, config=config, server_state=self._state, app_state={}, _loop=self.loop, front=self.front
        )

    def corpus(self) -> Sequence[bytes]:
        predict, infer = "/v1/models/sum:predict", "/v2/models/sum/infer"
        chunked = b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunked += (
            b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (_JSON_ONE[:7], _JSON_ONE[7:])) + b"0\r\n\r\n"
        )
        one = _post(predict, _JSON_ONE)
        get = b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n"
        return [
            one,
            one * 3,
            request(1, 2, 3),
            _post(predict, _JSON_ONE, "X-Request-Timeout-Ms: 500000", "X-Request-Id: mine"),
            _post(predict, _JSON_ONE, "Connection: close") + one,
            _post("/v1/models/sum/versions/3:predict", _JSON_ONE),
            _post(infer, _OIP_ONE),
            _post(infer, _OIP_BINARY + bytes(12), f"Inference-Header-Content-Length: {len(_OIP_BINARY)}") * 2,
            _post(infer, bytes(12), "Inference-Header-Content-Length: 0"),
            chunked + one,
            one.replace(b"HTTP/1.1", b"HTTP/1.0"),
            _post(predict, _JSON_ONE, "Expect: 100-continue"),
            get % b"/v2/health/live" + one,
            get % b"/v1/models/sum" + get % b"/metrics" + one,
            one + get % b"/v2/models/sum/config",
        ]

    def connect(self) -> Any:
        return self._make()

    def is_busy(self) -> bool:
        return bool(self._state.tasks)

    def told(self, written: bytes) -> list[tuple[int, bytes]]:
        found = []
        while written:
            head, end, rest = written.partition(b"\r\n\r\n")
            assert end, written
            lines = head.split(b"\r\n")
            status = int(lines[0].split()[1])
            if status == 100:
                written = rest
                continue
            assert status in _STATUSES, written
            headers = {}
            for line in lines[1:]:
                name, _, value = line.partition(b": ")
                headers[name.lower()] = value
            if headers.get(b"transfer-encoding") == b"chunked":
                body, _, written = rest.partition(b"0\r\n\r\n")
            else:
                size = int(headers.get(b"content-length", b"0"))
                if status != 204 and len(rest) < size:
                    size = len(rest)  # to HEAD
                body, written = rest[:size], rest[size:]
            found.append((status, b"" if b"rowwise_" in body else body))
        return found

    def agree(self, whole: list[tuple[int, bytes]], in_pieces: list[tuple[int, bytes]]) -> bool:
        if whole == in_pieces or any(status == 504 for status, _ in (*whole, *in_pieces)):
            return True  # a deadline passes by the clock, and earlier on a busy machine
        # What can't be read any further may come before or after the answer to the request that it is a part of.
        before = [told[: _n_before_unread(told)] for told in (whole, in_pieces)]
        shorter, longer = sorted(before, key=len)
        return before != [whole, in_pieces] and longer[: len(shorter)] == shorter and len(longer) - len(shorter) < 2

    def outcome(self, told: Any) -> str:
        return " ".join(sorted({str(status) for status, _ in told})) or "no answer"
