"""Whole connections as targets: the bytes of a caller of HTTP or gRPC into the protocol that a socket would feed.

Behind it is the web layer with models that are NumPy. However the bytes are cut, the answers must be the same; nothing
may be raised; and when the caller has gone, nothing of it may be held.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import uvicorn
from hpack import Encoder
from uvicorn.server import ServerState

from server.http_server import new_event_loop
from server.metrics import Metrics
from server.protocol.messages import message_class
from server.settings import Settings
from server.web import HotLaneProtocol, create_app
from server.web.http2.frames import END_HEADERS, END_STREAM, PREFACE, Kind, Setting, frame, settings, window_update
from server.web.rpc.server import RpcServer
from tests.fuzz_codecs.mutation import mutated
from tests.fuzz_codecs.target import Target
from tests.web.rpc.serving import infer_request
from tests.web.scripted import ScriptedCatalog, ScriptedModel
from tests.web.sockets import request

__all__ = ["CONNECTIONS"]

#: Turns of the loop in which what a request started has come to its end, where nothing waits for bytes.
_TURNS = 6
_STATUSES = {200, 202, 204, 400, 401, 403, 404, 405, 408, 409, 413, 414, 415, 429, 431, 501, 503, 504, 505}


class _Socket:
    """A transport that keeps what is written and calls back when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, kernels: socket.socket) -> None:
        self._loop = loop
        #: What is asked whether the caller is still there.
        self._kernels = kernels
        self.protocol: Any = None
        self.written = bytearray()
        self.is_lost = False
        self._is_closing = False
        self._is_reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"peername": ("127.0.0.1", 5_000), "sockname": ("127.0.0.1", 8_000), "socket": self._kernels}
        return known.get(name, default)

    def write(self, data: bytes) -> None:
        assert not self.is_lost
        self.written += data

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.lose)

    abort = close

    def lose(self) -> None:
        self._is_closing = True
        if not self.is_lost:
            self.is_lost = True
            self.protocol.connection_lost(None)

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def set_write_buffer_limits(self, *_: Any, **__: Any) -> None:
        pass


class _Connections(Target):
    """What the two have in common: a loop, the web layer, and two ways to cut the bytes."""

    def start(self) -> None:
        """Make what is asked, at the first input."""
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self.loop = self._runner.get_loop()
        self._pair = socket.socketpair()
        self.loop.set_exception_handler(self._note)
        self.raised: list[Any] = []
        self.catalog = ScriptedCatalog(Path(tempfile.mkdtemp()))
        self.catalog.serve(ScriptedModel("sum", 3))
        self.front = create_app(self.catalog, Settings(max_body_bytes=100_000), Metrics(process=False))
        self._run = self.loop.run_until_complete
        self._run(self.front.prepare())

    def _note(self, _: Any, context: dict[str, Any]) -> None:
        self.raised.append(context)

    def connect(self) -> Any:
        """Return a new protocol."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """True while something goes on that was started."""
        raise NotImplementedError

    def told(self, written: bytes) -> Any:
        """Return what was answered, without what differs each time. Errors: AssertionError where it is no answer."""
        raise NotImplementedError

    def read(self, data: bytes) -> str:
        if not hasattr(self, "_runner"):
            self.start()
        model = self.catalog.served["sum", 3]
        for kept in (model.rows, model.timeouts_s, model.spent_s, model.callers, model.priorities, model.tickets):
            kept.clear()
        told = [self._run(self._feed(data, len(data) or 1))]
        if crc32(data) % 3 == 0:
            told.append(self._run(self._feed(data, 1 + len(data) // 3)))
            assert self.agree(*told), told
        assert self.front.body_budget._n_bytes == 0
        assert not self.raised, self.raised
        return self.outcome(told[0])

    def agree(self, whole: Any, in_pieces: Any) -> bool:
        """True if both are answers to the same bytes."""
        raise NotImplementedError

    def outcome(self, told: Any) -> str:
        """Name what came."""
        raise NotImplementedError

    async def _feed(self, data: bytes, step: int) -> Any:
        protocol, transport = self.connect(), _Socket(self.loop, self._pair[0])
        transport.protocol = protocol
        protocol.connection_made(transport)
        for start in range(0, len(data), step):
            if transport.is_lost:
                break
            protocol.data_received(data[start : start + step])
            n_written = -1
            while n_written != len(transport.written):  # cold requests that wait their turn take some turns each
                n_written = len(transport.written)
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        written = bytes(transport.written)
        transport.lose()
        for _ in range(100):
            await asyncio.sleep(0)
            if not self.is_busy():
                break
        else:
            raise AssertionError("something goes on though the caller has gone")
        return self.told(written)


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


class Http(_Connections):
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


class Http2(_Connections):
    """gRPC: frames, header blocks, messages and methods."""

    name = "http2"

    def start(self) -> None:
        super().start()
        self._server = RpcServer(self.front, self.catalog, connections=10)

    def corpus(self) -> Sequence[bytes]:
        infer = infer_request([1, 2, 3]).SerializeToString()
        predict = message_class("tensorflow.serving.PredictRequest")()
        predict.model_spec.name = "sum"
        tensor = predict.inputs["x"]
        tensor.dtype = 1
        for size in (1, 3):
            tensor.tensor_shape.dim.add(size=size)
        tensor.float_val.extend((1, 2, 3))
        oip = "/inference.GRPCInferenceService/"
        calls = [
            (f"{oip}ModelInfer", infer),
            (f"{oip}ModelStreamInfer", infer),
            (f"{oip}ServerLive", b""),
            (f"{oip}ModelConfig", b"\x0a\x03sum"),
            (f"{oip}RepositoryIndex", b""),
            ("/tensorflow.serving.PredictionService/Predict", predict.SerializeToString()),
            ("/tensorflow.serving.ModelService/GetModelStatus", b"\x0a\x05\x0a\x03sum"),
            ("/grpc.health.v1.Health/Check", b""),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", b"\x3a\x00"),
            ("/nobody/Knows", b""),
        ]
        begin = PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: 2**20}) + window_update(0, 2**20)
        found = []
        for at, (path, body) in enumerate(calls):
            encoder = Encoder()
            sent = begin
            for stream in (1, 3):
                headers = [
                    (":method", "POST"),
                    (":scheme", "http"),
                    (":path", path),
                    (":authority", "a"),
                    ("te", "trailers"),
                ]
                headers += [("content-type", "application/grpc"), ("grpc-timeout", "5S"), ("x-request-id", "r")]
                block = encoder.encode(headers, huffman=bool(at % 2))
                data = b"\0" + len(body).to_bytes(4, "big") + body
                if at % 3:
                    sent += frame(Kind.HEADERS, END_HEADERS, stream, block)
                else:
                    sent += frame(Kind.HEADERS, 0, stream, block[:9]) + frame(
                        Kind.CONTINUATION, END_HEADERS, stream, block[9:]
                    )
                sent += frame(Kind.DATA, 0, stream, data[:6]) + frame(Kind.DATA, END_STREAM, stream, data[6:])
            found.append(sent + frame(Kind.PING, 0, 0, bytes(8)))
        found.append(
            begin + found[0][len(begin) :] + frame(Kind.RST_STREAM, 0, 3, bytes(4)) + frame(Kind.GOAWAY, 0, 0, bytes(8))
        )
        return found

    def draw(self, random_: random.Random, corpus: Sequence[bytes]) -> bytes:
        """Break what is in the frames more often than the frames."""
        if random_.random() < 0.3:
            return mutated(random_, corpus)
        data = random_.choice(corpus)
        at = len(PREFACE)
        frames = []
        while at < len(data):
            size = int.from_bytes(data[at : at + 3], "big")
            frames.append(
                (data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big"), data[at + 9 : at + 9 + size])
            )
            at += 9 + size
        for _ in range(random_.choice((1, 1, 2))):
            place = random_.randrange(len(frames))
            kind, flags, stream, payload = frames[place]
            match random_.randrange(6):
                case 0:
                    kind = random_.randrange(12)
                case 1:
                    flags ^= 1 << random_.randrange(6)
                case 2:
                    stream = random_.choice((0, 1, 2, 3, 5, 2**31 - 1))
                case 3:
                    frames.insert(random_.randrange(len(frames)), frames[place])
                case _:
                    payload = mutated(random_, [payload])
            frames[place] = (kind, flags, stream, payload)
        return PREFACE + b"".join(frame(*each) for each in frames)

    def connect(self) -> Any:
        return self._server._connection()

    def is_busy(self) -> bool:
        return len(asyncio.all_tasks(self.loop)) > 1

    def told(self, written: bytes) -> list[tuple[int, int]]:
        found = []
        while written:
            size = int.from_bytes(written[:3], "big")
            kind, stream = written[3], int.from_bytes(written[5:9], "big")
            assert len(written) >= 9 + size
            if kind in (Kind.HEADERS, Kind.DATA, Kind.RST_STREAM, Kind.GOAWAY):
                found.append((kind, stream))
            written = written[9 + size :]
        # Several streams are answered in any order.
        return sorted(found, key=lambda each: each[1])

    def agree(self, whole: list[tuple[int, int]], in_pieces: list[tuple[int, int]]) -> bool:
        left = (Kind.GOAWAY, 0)
        if left in whole or left in in_pieces:
            return True  # it overtakes answers, and what it is for is none where the stream was over by then
        # What is sent too much may come before or after the answer.
        answered = [{stream for kind, stream in told if kind == Kind.HEADERS} for told in (whole, in_pieces)]
        return answered[0] == answered[1]

    def outcome(self, told: Any) -> str:
        kinds = {kind for kind, _ in told}
        parts = [Kind(kind).name.lower() for kind in (Kind.DATA, Kind.RST_STREAM, Kind.GOAWAY) if kind in kinds]
        return "+".join(parts) or ("refused" if kinds else "no answer")


CONNECTIONS: tuple[Target, ...] = (Http(), Http2())
