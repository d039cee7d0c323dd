"""A client that sends an archive in pieces, request by request."""

from __future__ import annotations

import base64
import hashlib

import httpx

from tests.web.scripted import Service

ARCHIVE = bytes(range(256)) * 40
PIECE = {"content-type": "application/offset+octet-stream"}


def digest(content: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def begin(service: Service, length: int = len(ARCHIVE), **headers: str) -> str:
    answer = service.request("POST", "/v1/uploads", headers={"upload-length": str(length), **headers})
    assert answer.status_code == 201, answer.text
    assert answer.headers["tus-resumable"] == "1.0.0"
    return str(answer.headers["location"])


def send(service: Service, place: str, offset: int, piece: bytes) -> httpx.Response:
    return service.request("PATCH", place, content=piece, headers={**PIECE, "upload-offset": str(offset)})


def offset(service: Service, place: str) -> int:
    answer = service.request("HEAD", place)
    assert answer.status_code == 204
    return int(answer.headers["upload-offset"])
