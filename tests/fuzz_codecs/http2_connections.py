"""Connections of gRPC as a target: calls in frames, whose payloads are broken more often than the frames."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from hpack import Encoder

from server.protocol.messages import message_class
from server.web.http2.frames import END_HEADERS, END_STREAM, PREFACE, Kind, Setting, frame, settings, window_update
from server.web.rpc.server import RpcServer
from tests.fuzz_codecs.connections import Connections
from tests.fuzz_codecs.mutation import mutated
from tests.web.rpc.serving import infer_request

__all__ = ["Http2"]


class Http2(Connections):
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
