"""Requests that are no requests, or far too much of one."""

from __future__ import annotations

import gzip
import json
import re
import socket
import struct
import time

from loadtests.attack.case import Harm, attack
from loadtests.attack.target import Target, registration

__all__: list[str] = []

_AREA = "requests"
_PREDICT = "/v1/models/digits:predict"


def _post(target: Target, body: bytes, *, path: str = _PREDICT, **headers: str) -> str:
    answer = target.ask(
        "POST",
        path,
        token=target.caller,
        content=body,
        headers={
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
    )
    return target.refused(answer)


@attack(_AREA, "JSON that is nested 1,000,000 deep")
def deep_json(target: Target) -> str:
    """Parsers that recurse overflow their stack."""
    return _post(target, b'{"instances": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}")


@attack(_AREA, "a number of 1,000,000 digits")
def long_number(target: Target) -> str:
    """Python takes quadratic time to read one."""
    began_s = time.monotonic()
    said = _post(target, b'{"instances": [{"image": ' + b"9" * 1_000_000 + b"}]}")
    assert time.monotonic() - began_s < 10, "it took long"
    return said


@attack(_AREA, "100,000 keys that collide")
def colliding_keys(target: Target) -> str:
    """Keys of one hash make a dict of a parser's own slow."""
    began_s = time.monotonic()
    said = _post(target, json.dumps({"instances": [{f"k{n}": 0 for n in range(100_000)}]}).encode())
    assert time.monotonic() - began_s < 10, "it took long"
    return said


@attack(_AREA, "1,000,000 instances")
def many_instances(target: Target) -> str:
    """More than one request may have."""
    return _post(target, b'{"instances": [' + b"0," * 999_999 + b"0]}")


@attack(_AREA, "a body of 10 GB, by its header")
def huge_length(target: Target) -> str:
    """Refused before it is read."""
    host = ":".join(map(str, target.address))
    got = target.raw(
        f"POST {_PREDICT} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {target.caller}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {10 * 2**30}\r\n\r\n".encode()
    )
    assert got.startswith(b"HTTP/1.1 413"), f"answered {got[:100]!r}"
    return got.split(b"\r\n", 1)[0].decode()


@attack(_AREA, "a bomb of gzip")
def gzip_bomb(target: Target) -> str:
    """1 GB of zeros in 1 MB."""
    return _post(target, gzip.compress(bytes(2**30), 1), Content_Encoding="gzip")


@attack(_AREA, "two requests in one, by two lengths")
def smuggling(target: Target) -> str:
    """What a proxy in front would read otherwise."""
    host = ":".join(map(str, target.address))
    got = target.raw(
        f"POST {_PREDICT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
        f"0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    )
    assert got.startswith(b"HTTP/1.1 400"), f"answered {got[:100]!r}"
    if len(re.findall(rb"HTTP/1\.1 \d", got)) > 1:
        raise Harm("the second request was answered too")
    return got.split(b"\r\n", 1)[0].decode()


@attack(_AREA, "a header of 10 MB")
def huge_header(target: Target) -> str:
    """Without an end."""
    got = target.raw(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 10_000_000)
    assert not got or got.startswith(b"HTTP/1.1 4"), f"answered {got[:100]!r}"
    return got.split(b"\r\n", 1)[0].decode() or "cut off"


@attack(_AREA, "500 connections that send a byte a second")
def slow_loris(target: Target) -> str:
    """For ten seconds; others are answered meanwhile (the watch says so)."""
    connections = [socket.create_connection(target.address, timeout=10) for _ in range(500)]
    try:
        for byte in b"GET / HTTP/1":
            for connection in connections:
                try:
                    connection.send(bytes([byte]))
                except OSError:
                    continue
            time.sleep(0.8)
    finally:
        for connection in connections:
            connection.close()
    return "others were answered meanwhile"


@attack(_AREA, "requests on one connection without an end, and no answer read")
def never_reads(target: Target) -> str:
    """Answers pile up, somewhere."""
    host = ":".join(map(str, target.address))
    with socket.create_connection(target.address, timeout=5) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            for _ in range(1_000_000):
                connection.sendall(f"GET /v2/models/digits HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        except OSError:
            return "held back: it can't send more before it reads"
    raise Harm("a million were taken: their answers are kept somewhere")


@attack(_AREA, "HTTP/2 frames that carry nothing, by the million")
def http2_flood(target: Target) -> str:
    """Settings, without an end, to gRPC's port."""
    host, _, port = target.grpc.partition(":")
    n_sent = 0
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        try:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            frame = struct.pack(">IBI", 0, 4, 0)[1:]
            for _ in range(200):
                connection.sendall(frame * 5_000)
                n_sent += 5_000
        except OSError:
            return f"cut off after {n_sent:,}"
    raise Harm(f"{n_sent:,} frames were taken")


@attack(_AREA, "binary tensors whose sizes are lies")
def lying_sizes(target: Target) -> str:
    """The header says 4 GB of a body of 100 bytes."""
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "image",
                    "datatype": "FP32",
                    "shape": [1, 2**30],
                    "parameters": {"binary_data_size": 2**32},
                }
            ]
        }
    ).encode()
    return _post(
        target,
        head + bytes(100),
        path="/v2/models/digits/infer",
        Inference_Header_Content_Length=str(len(head)),
        Content_Type="application/octet-stream",
    )


@attack(_AREA, "shared memory of another process")
def shared_memory(target: Target) -> str:
    """Triton's extension: a name in /dev/shm is taken from the request."""
    answers = [
        target.ask(
            "POST", "/v2/systemsharedmemory/region/x/register", token=target.registrar, json={"key": "/dev/shm/x"}
        ),
        target.ask(
            "POST",
            "/v2/models/digits/infer",
            token=target.caller,
            json={
                "inputs": [
                    {
                        "name": "image",
                        "datatype": "FP32",
                        "shape": [1, 64],
                        "parameters": {"shared_memory_region": "x", "shared_memory_byte_size": 256},
                    }
                ]
            },
        ),
    ]
    return " and ".join(target.refused(answer)[:60] for answer in answers)


@attack(_AREA, "a model by URL")
def model_by_url(target: Target) -> str:
    """The server would fetch from inside what the caller can't reach."""
    said = ""
    for field in ("url", "archive_url", "model_url", "source_url", "path"):
        for value in ("http://169.254.169.254/latest/meta-data", "file:///etc/passwd"):
            message = {"inputs": registration()["inputs"], field: value}
            answer = target.ask("PUT", f"/v1/models/{target.new_name()}", token=target.registrar, json=message)
            said = target.refused(answer)
    return said


def _names() -> dict[str, str]:
    return {
        "a name that climbs": "..%2f..%2fetc",
        "a name that is dots": "%2e%2e",
        "a name with a NUL": "digits%00",
        "a name that looks like another (Cyrillic)": "d%D1%96gits",
        "a name with a line break": "digits%0d%0aX-Owned:%201",
        "a name of 10 MB": "a" * 10_000_000,
        "a name that is a device": "con%3a",
    }


def _registering_under_names() -> None:
    for what in (
        "a name that climbs",
        "a name that is dots",
        "a name with a NUL",
        "a name that looks like another (Cyrillic)",
        "a name with a line break",
        "a name of 10 MB",
        "a name that is a device",
    ):

        def run(target: Target, what: str = what) -> str:
            host = ":".join(map(str, target.address))
            body = json.dumps(registration()).encode()
            got = target.raw(
                f"PUT /v1/models/{_names()[what]} HTTP/1.1\r\nHost: {host}\r\n"
                f"Authorization: Bearer {target.registrar}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            status = got.split(b"\r\n", 1)[0].decode("latin-1")
            assert not got or status.startswith("HTTP/1.1 4"), f"answered {got[:200]!r}"
            if b"X-Owned" in got.split(b"\r\n\r\n", 1)[0]:
                raise Harm("a header was put into the answer")
            return status or "cut off"

        attack(_AREA, what)(run)


_registering_under_names()
