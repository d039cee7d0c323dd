"""One pool of HTTP connections to one server; every failure of it becomes one of our errors.

What a thread and an event loop have in common is here: how requests are made, and what answers and failures mean.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import time
from threading import BoundedSemaphore
from typing import Any, TypeVar
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import httpx

from rowwise._pool import Stack
from rowwise._steps import Pause, Send, Step, Steps
from rowwise.errors import BadAnswer, ConnectionFailed, NotConnected, RowwiseClientError, TimedOut, refusal
from rowwise.values import decode_json

__all__ = ["Connection", "Target", "answer_json", "model_path"]

#: How long to wait for a connection, seconds. A server that is there accepts within milliseconds.
_CONNECT_TIMEOUT_S = 5.0
#: Seconds after which an idle connection is not used again: less than the 75 after which the server closes it.
_KEEP_S = 60.0

#: Paths whose URLs are remembered.
_MAX_URLS = 256

_Result = TypeVar("_Result")


class Target:
    """Where requests go, and how. Errors: ConnectionFailed for a URL that is none.

    Requests are given to httpx's transports, which are its pools of connections. Its clients add redirects, cookies and
    ways to authenticate, which no answer here asks for and which take as long again.
    """

    def __init__(self, url: str, *, token: str | None, connections: int, ca: str | os.PathLike[str] | None) -> None:
        try:
            base = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise ConnectionFailed(f"{url!r} is not a URL ({error}); say for example http://127.0.0.1:8000") from error
        if base.scheme not in {"http", "https"} or not base.host:
            raise ConnectionFailed(f"{url!r} is not an http or https URL; say for example http://127.0.0.1:8000")
        self.url = url
        #: How many may be open at once.
        self.connections = connections
        self._base = base
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        #: What httpx's transports take.
        self.options: dict[str, Any] = {
            "limits": httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_KEEP_S),
            # One context for all of them: to make one takes longer than a request.
            "verify": base.scheme == "https" and (httpx.create_ssl_context() if ca is None else _trusting(ca)),
            "proxy": _proxy_for(base),
        }
        #: By path.
        self._urls: dict[str, httpx.URL] = {}

    def request(self, step: Send) -> httpx.Request:
        """Return a step's request. Errors: ConnectionFailed for a path that makes no URL."""
        timeout_s = step.timeout_s
        assert timeout_s is not None, "who sends knows how long"
        headers = {**self._headers, **step.headers}
        if step.tells_deadline:
            headers["X-Request-Timeout-Ms"] = str(max(1, round(timeout_s * 1_000)))
        connect_s = min(timeout_s, _CONNECT_TIMEOUT_S)
        timeouts = {"connect": connect_s, "read": timeout_s, "write": timeout_s, "pool": timeout_s}
        return httpx.Request(
            step.method,
            self._url(step),
            content=step.content,
            files=step.files,
            headers=headers,
            extensions={"timeout": timeouts},
        )

    def _url(self, step: Send) -> httpx.URL:
        url = self._urls.get(step.path)
        if url is None:
            try:
                url = self._base.copy_with(raw_path=self._base.raw_path.rstrip(b"/") + step.path.encode("ascii"))
            except (httpx.InvalidURL, UnicodeError) as error:
                raise ConnectionFailed(f"{step.method} {self.url}{step.path}: {error}") from error
            if len(self._urls) >= _MAX_URLS:
                self._urls.clear()
            self._urls[step.path] = url
        return url

    def failure(self, step: Send, error: Exception) -> RowwiseClientError:
        """Return what a failure of httpx means."""
        where = f"{step.method} {self.url}{step.path}"
        if isinstance(error, httpx.TimeoutException | TimeoutError):
            return TimedOut(f"{where}: no answer in time ({type(error).__name__})")
        reason = str(error) or type(error).__name__
        is_untrusted = "CERTIFICATE_VERIFY_FAILED" in reason
        hint = "name who signed its certificate (ca=, --ca)" if is_untrusted else "is the server running there?"
        never_sent = isinstance(error, httpx.ConnectError) and not is_untrusted
        return (NotConnected if never_sent else ConnectionFailed)(f"{where}: {reason}; {hint}")

    @staticmethod
    def checked(answer: httpx.Response) -> httpx.Response:
        """Return an answer that is a success. Errors: ServerRefused."""
        if not answer.is_success:
            raise refusal(answer.status_code, _message(answer), retry_after=answer.headers.get("Retry-After"))
        return answer


class Connection:
    """Carries out steps on the thread that asks. May be used by several threads, and by a child after a fork."""

    def __init__(self, target: Target, *, transport: httpx.BaseTransport | None = None) -> None:
        self._target = target
        #: One that was given is for all requests, and for its giver to make right for a child.
        self._given = transport
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        #: Who may use its connections: a child of that process would speak into the parent's.
        self._pid = os.getpid()
        self._stack: Stack[httpx.BaseTransport] = Stack(lambda: httpx.HTTPTransport(**self._target.options))
        self._places = BoundedSemaphore(self._target.connections)

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._is_closed = True
        if self._pid == os.getpid():
            for transport in self._stack.all_free() if self._given is None else [self._given]:
                transport.close()

    def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out a call and return its result. Errors: what the call raises."""
        outcome: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(outcome) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: _Result = stop.value
                return result
            outcome = error = None
            try:
                outcome = self._do(step)
            except BaseException as raised:  # noqa: BLE001 - the call cleans up, and raises it again
                error = raised

    def _do(self, step: Step) -> Any:
        if isinstance(step, Send):
            return self._send(step)
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        return step.do()

    def _send(self, step: Send) -> httpx.Response:
        if self._is_closed:
            raise ConnectionFailed("the client is closed: make another one")
        if self._pid != os.getpid():
            # Closing would say good-bye over the parent's connections.
            self._begin()
        request = self._target.request(step)
        try:
            answer = self._answer(request, step) if self._given is None else _read(self._given, request)
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            raise self._target.failure(step, error) from error
        return self._target.checked(answer)

    def _answer(self, request: httpx.Request, step: Send) -> httpx.Response:
        if not self._places.acquire(timeout=step.timeout_s):
            raise TimeoutError
        try:
            transport = self._stack.take()
            try:
                return _read(transport, request)
            finally:
                # What broke it has closed.
                self._stack.give_back(transport)
                if self._is_closed:
                    self.close()
        finally:
            self._places.release()


def _read(transport: httpx.BaseTransport, request: httpx.Request) -> httpx.Response:
    answer = transport.handle_request(request)
    try:
        answer.read()
    finally:
        answer.close()
    return answer


def answer_json(request: Send, answer: httpx.Response) -> Any:
    """Return an answer's JSON. Errors: BadAnswer."""
    try:
        return decode_json(answer.content)
    except ValueError as error:
        raise BadAnswer(
            f"{request.method} {request.path}: the answer is not JSON ({error}); is it a Rowwise server?"
        ) from error


def model_path(name: str, version: int | None = None, tail: str = "", *, api: str = "v1") -> str:
    """Return the path of a model or a version of it; whatever the name holds, it stays one path segment."""
    # A segment of dots only would be resolved away before it is sent.
    segment = name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")
    return f"/{api}/models/{segment}" + ("" if version is None else f"/versions/{version}") + tail


def _trusting(ca: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # one of TLS too
        reason = "no certificate in PEM is in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConnectionFailed(f"the authorities in {os.fspath(ca)!r} can't be used: {reason}") from error


def _proxy_for(base: httpx.URL) -> str | None:
    """Return the proxy that the environment names for a server; a proxy can't reach this machine's loopback."""
    if _is_loopback(base.host) or proxy_bypass(base.host):
        return None
    proxies = getproxies()
    proxy = proxies.get(base.scheme, proxies.get("all"))
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


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
