"""The server that is attacked, and what an attacker can reach: its ports, a token of few rights, and the manual."""

from __future__ import annotations

import io
import json
import socket
import tarfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from loadtests.contenders import Server

__all__ = ["INPUTS", "Listener", "Secrets", "Target", "archive_of", "registration"]

#: Inputs of the models that attackers hand in.
INPUTS = {"x": {"dtype": "float32", "shape": [3]}}
_PATIENCE_S = 240.0


@dataclass(frozen=True, slots=True)
class Secrets:
    """What nobody may learn: each is a text that occurs nowhere else. And what nobody may touch."""

    #: Of a file that its owner alone may read.
    in_file: str
    file: Path
    #: Of the server's environment.
    in_environment: str
    #: A file that must stay as it is, in a directory where nothing may be added.
    untouched: Path
    #: The token that may do everything.
    token: str


@dataclass(slots=True)
class Target:
    """A running server. ``said`` keeps every answer, so that all of them can be searched for secrets."""

    server: Server
    grpc: str
    secrets: Secrets
    #: Tokens: of who may register, of who may predict, of who may predict another model only.
    registrar: str
    caller: str
    neighbour: str
    store: Path
    said: list[str] = field(default_factory=list)
    _number: int = 0

    @property
    def url(self) -> str:
        """Where HTTP is answered."""
        return self.server.url

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of HTTP."""
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 80)

    def new_name(self) -> str:
        """Return a name that no model has."""
        self._number += 1
        return f"attack-{self._number}"

    def ask(
        self, method: str, path: str, *, token: str | None = None, keep: bool = True, **options: Any
    ) -> httpx.Response:
        """Send a request as a client library would; with ``keep`` the answer is searched at the end."""
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        answer = httpx.request(method, self.url + path, headers=headers, timeout=_PATIENCE_S, **options)
        if keep:
            self.said.append(answer.text)
        return answer

    def refused(self, answer: httpx.Response, *, by: Iterable[int] = range(400, 500)) -> str:
        """Return how a request was refused. Errors: AssertionError if it was not, or by a fault of the server."""
        assert answer.status_code in set(by), f"answered {answer.status_code}: {answer.text[:300]}"
        try:
            error = answer.json().get("error", "")
        except (ValueError, AttributeError):
            error = answer.text
        return f"{answer.status_code}: {str(error)[:110]}"

    def raw(self, data: bytes, *, wait_s: float = 10.0) -> bytes:
        """Send bytes as they are, and return what comes until the server closes or is silent."""
        with socket.create_connection(self.address, timeout=wait_s) as connection:
            parts = []
            try:
                connection.sendall(data)
                connection.settimeout(wait_s)
                while part := connection.recv(65_536):
                    parts.append(part)
                    if len(part) < 65_536 and b"\r\n\r\n" in b"".join(parts):
                        connection.settimeout(0.5)
            except (TimeoutError, ConnectionError):
                pass
        got = b"".join(parts)
        self.said.append(got.decode("latin-1"))
        return got

    def hand_in(self, source: str, *, weights: str | None = None, keep: bool = True, **spec: Any) -> httpx.Response:
        """Register a model by its text, and wait for what becomes of it."""
        message = {"source": source, "inputs": INPUTS, "buckets": [1], **spec}
        if weights is not None:
            message["weights"] = weights
        path = f"/v1/models/{self.new_name()}?wait=true"
        return self.ask("PUT", path, token=self.registrar, keep=keep, json=message)

    def upload(
        self, archive: bytes, *, name: str = "model.tar.gz", spec: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """Register a model by an archive, and wait for what becomes of it."""
        return self.ask(
            "PUT",
            f"/v1/models/{self.new_name()}?wait=true",
            token=self.registrar,
            files={"archive": (name, archive)},
            data={"spec": json.dumps(spec or {"inputs": INPUTS, "buckets": [1]})},
        )


def registration(**fields: Any) -> dict[str, Any]:
    """Return a body that registers a harmless model, but for what is given."""
    return {"source": "def predict(x):\n    return x\n", "inputs": INPUTS, "buckets": [1], **fields}


def archive_of(files: Mapping[str, bytes], *, members: Iterable[tarfile.TarInfo] = ()) -> bytes:
    """Return a .tar.gz of files, and of members that are no files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for member in members:
            archive.addfile(member)
    return buffer.getvalue()


class Listener:
    """Somebody who would like to be called: counts connections on a port of this machine."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.port = int(self._socket.getsockname()[1])
        self.n_calls = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.2)
        self._stopped.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            self.n_calls += 1
            connection.close()
