"""An S3-compatible server on a free port, that can be held up and cut off."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import httpx
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "models"

# A line for each request is too much of a log.
logging.getLogger("werkzeug").setLevel(logging.WARNING)


class BucketServer:
    """Moto's S3. ``environment`` is what a client of it needs."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        #: Set: uploads of files wait, and ``held_up`` is set by the first that does.
        self.holds_uploads = threading.Event()
        self.held_up = threading.Event()
        self.is_cut = False
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
        }

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if self.is_cut:
            start("503 Service Unavailable", [("Content-Length", "0")])
            return [b""]
        if environ["REQUEST_METHOD"] == "PUT" and "/blobs/" in environ["PATH_INFO"]:
            while self.holds_uploads.is_set():
                self.held_up.set()
                threading.Event().wait(0.05)
        answer: Iterable[bytes] = self._app(environ, start)
        return answer

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        assert httpx.put(f"{self.url}/{BUCKET}").status_code == 200
        return self

    def __exit__(self, *_: object) -> None:
        self.holds_uploads.clear()
        self._server.shutdown()
