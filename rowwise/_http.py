"""One HTTP connection pool to one server; every failure of it becomes one of our errors."""

from __future__ import annotations

import ipaddress
import os
import ssl
from typing import Any
from urllib.parse import quote

import httpx

from rowwise.errors import BadAnswer, ConnectionFailed, TimedOut, refusal
from rowwise.values import decode_json

__all__ = ["Connection", "model_path"]

#: How long to wait for a connection, seconds. A server that is there accepts within milliseconds.
_CONNECT_TIMEOUT_S = 5.0


class Connection:
    """Sends requests to ``url`` and returns answers that are successes.

    Errors: ConnectionFailed, TimedOut; ServerRefused (its subclass by status) for every other answer.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        timeout_s: float,
        ca: str | os.PathLike[str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        try:
            base = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise ConnectionFailed(f"{url!r} is not a URL ({error}); say for example http://127.0.0.1:8000") from error
        if base.scheme not in {"http", "https"} or not base.host:
            raise ConnectionFailed(f"{url!r} is not an http or https URL; say for example http://127.0.0.1:8000")
        self.url = url
        self._http = httpx.Client(
            base_url=base,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S)),
            transport=transport,
            verify=True if ca is None else _trusting(ca),
            # A proxy that the environment names can't reach this machine's loopback interface.
            trust_env=not _is_loopback(base.host),
        )

    def close(self) -> None:
        """Close every pooled connection."""
        self._http.close()

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send one request and read its whole answer. ``options`` are those of ``httpx.Client.request``."""
        try:
            answer = self._http.request(method, path, **options)
        except httpx.TimeoutException as error:
            raise TimedOut(f"{method} {self.url}{path}: no answer in time ({type(error).__name__})") from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            reason = str(error) or type(error).__name__
            is_untrusted = "CERTIFICATE_VERIFY_FAILED" in reason
            hint = "name who signed its certificate (ca=, --ca)" if is_untrusted else "is the server running there?"
            raise ConnectionFailed(f"{method} {self.url}{path}: {reason}; {hint}") from error
        except httpx.InvalidURL as error:
            raise ConnectionFailed(f"{method} {self.url}{path}: {error}") from error
        if not answer.is_success:
            raise refusal(answer.status_code, _message(answer), retry_after=answer.headers.get("Retry-After"))
        return answer

    def send_json(self, method: str, path: str, **options: Any) -> Any:
        """Send one request and return its answer's JSON. Errors: those of ``send``; BadAnswer."""
        answer = self.send(method, path, **options)
        try:
            return decode_json(answer.content)
        except ValueError as error:
            raise BadAnswer(
                f"{method} {self.url}{path}: the answer is not JSON ({error}); is it a Rowwise server?"
            ) from error


def model_path(name: str, version: int | None = None, tail: str = "") -> str:
    """Return the path of a model or a version of it; whatever the name holds, it stays one path segment."""
    # A segment of dots only would be resolved away before it is sent.
    segment = name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")
    return f"/v1/models/{segment}" + ("" if version is None else f"/versions/{version}") + tail


def _trusting(ca: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # one of TLS too
        reason = "no certificate in PEM is in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConnectionFailed(f"the authorities in {os.fspath(ca)!r} can't be used: {reason}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _message(answer: httpx.Response) -> str:
    """Return the sentence of an error answer: ours, else what any other server wrote, cut short."""
    try:
        body = decode_json(answer.content)
    except ValueError:
        body = None
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return str(body["error"])
    text = " ".join(answer.text.split())[:200]
    return f"HTTP {answer.status_code} {answer.reason_phrase}" + (f": {text}" if text else "")
