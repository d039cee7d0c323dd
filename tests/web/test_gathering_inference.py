"""Plain inference requests of the Open Inference Protocol that come together are one array, too."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.web.sockets import Connection, Running, over_sockets


def infer(*numbers: float, form: str, headers: str = "", ident: str | None = None) -> bytes:
    """A request of the Open Inference Protocol."""
    values, length = b"", ""
    tensor: dict[str, Any] = {"name": "x", "shape": [1, 3], "datatype": "FP32"}
    if form == "json":
        tensor["data"] = [list(numbers)]
    else:
        values = np.float32(numbers).tobytes()
        tensor["parameters"] = {"binary_data_size": len(values)}
    message: dict[str, Any] = {"inputs": [tensor], "parameters": {"binary_data_output": form != "json"}}
    body = b"" if form == "raw" else json.dumps(message | ({} if ident is None else {"id": ident})).encode()
    if form != "json":
        length = f"Inference-Header-Content-Length: {len(body)}\r\n"
    body += values
    return (
        f"POST /v2/models/sum/infer HTTP/1.1\r\nHost: test\r\n{length}{headers}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


@pytest.mark.parametrize("form", ["json", "binary", "raw"])
def test_inference_requests_come_together_too_and_are_answered_to_the_byte_as_alone(tmp_path: Path, form: str) -> None:
    async def test(server: Running, first: Connection) -> None:
        connections = [first, *[await server.connect() for _ in range(5)]]
        idents = [None if form == "raw" else each for each in (None, None, "a", "b", "cc", None)]
        asks = [partial(infer, number, 2, 3, form=form, ident=ident) for number, ident in enumerate(idents)]
        lone = []
        for connection, ask in zip(connections, asks, strict=True):
            connection.send(ask())
            await connection.answer()
            connection.send(ask(headers="X-Request-Id: mine\r\n"))
            lone.append(await connection.answer())
        server.model.rows.clear()
        for connection, ask in zip(connections, asks, strict=True):
            connection.send(ask())
        answers = [await connection.answer() for connection in connections]
        assert len({id(rows.columns[0].base) for rows in server.model.rows}) < 6, "several rows lie in one array"
        for (status, headers, body), alone in zip(answers, lone, strict=True):
            assert (status, body) == (alone[0], alone[2])
            assert headers.pop("x-request-id") != alone[1].pop("x-request-id")
            assert headers.pop("date")
            assert alone[1].pop("date")
            assert list(headers.items()) == list(alone[1].items())
        assert server.codes() == {"200": 18.0}

    over_sockets(test, tmp_path)


def test_a_bad_inference_request_among_them_gets_its_error_and_the_others_their_answers(tmp_path: Path) -> None:
    async def test(server: Running, first: Connection) -> None:
        connections = [first, *[await server.connect() for _ in range(4)]]
        good = infer(1, 2, 3, form="json")
        for connection in connections:
            connection.send(good)
            assert (await connection.answer())[0] == 200
        requests = [good] * 5
        requests[2] = good.replace(b"[[1, 2, 3]]", b"[[1, 2, x]]")
        for connection, one in zip(connections, requests, strict=True):
            connection.send(one)
        assert [(await connection.answer())[0] for connection in connections] == [200, 200, 400, 200, 200]

    over_sockets(test, tmp_path)
