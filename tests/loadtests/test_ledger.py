"""The account of requests: what is right, what is explained, and that nothing else gets by."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadtests.chaos import verdict
from loadtests.faults import Scenario
from loadtests.ledger import Callers, End, Ledger
from loadtests.small_models import Question, question

#: From a request's id and body to status, id of the answer, headers and body.
Reply = Callable[[str, bytes], tuple[int, str, dict[str, str], bytes]]


@contextmanager
def serving(reply: Reply, *, afterwards: bytes = b"") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, request_id, headers, answer = reply(self.headers["X-Request-Id"], body)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"X-Request-Id": request_id, "Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer + afterwards)

        def log_message(self, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(number: int) -> Question:
    return question(number, "shares", "shares")


def answer(request_id: str, body: bytes) -> tuple[int, str, dict[str, str], bytes]:
    """What a server that is right says."""
    divisors = json.loads(body)["instances"]
    if 0 in divisors:
        return 400, request_id, {}, b'{"error": "instance 1: division by zero"}'
    return 200, request_id, {}, json.dumps({"predictions": [840 // divisor for divisor in divisors]}).encode()


def account(reply: Reply, *, afterwards: bytes = b"", n: int = 60) -> Ledger:
    ledger = Ledger()
    enough = threading.Event()

    def counted(request_id: str, body: bytes) -> tuple[int, str, dict[str, str], bytes]:
        if ledger.n_sent >= n:
            enough.set()
        return reply(request_id, body)

    with serving(counted, afterwards=afterwards) as url, Callers(url, ledger, ask, n=3):
        assert enough.wait(30)
    return ledger


def test_right_answers_and_refusals_of_bad_examples_are_told_apart_and_every_request_has_one_end() -> None:
    ledger = account(answer)
    assert ledger.ends.keys() == {End.RIGHT, End.BAD_EXAMPLE}
    assert ledger.difference() == 0
    assert ledger.n_sent == sum(ledger.ends.values()) >= 60


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda request_id, body: (200, request_id, {}, b'{"predictions": [1]}'), "is wrong"),
        (lambda request_id, body: (200, "another", {}, answer("", body)[3]), "is the answer to another"),
        (lambda request_id, body: (503, request_id, {}, b'{"error": "stopping"}'), "no Retry-After"),
        (lambda request_id, body: (503, request_id, {"Retry-After": "2"}, b"<html>"), "says no error"),
        (lambda request_id, body: (418, request_id, {}, b'{"error": "a teapot"}'), "418"),
    ],
)
def test_what_nothing_explains_is_kept_word_for_word(wrong: Reply, what: str) -> None:
    ledger = account(wrong)
    assert ledger.ends[End.UNEXPLAINED] == ledger.n_sent
    assert all(re.search(what, sentence) for sentence in ledger.unexplained)


def test_bytes_after_an_answer_are_seen() -> None:
    ledger = account(answer, afterwards=b"HTTP/1.1 200 OK\r\n\r\n")
    assert ledger.ends.keys() == {End.UNEXPLAINED}
    assert all("more was sent" in sentence for sentence in ledger.unexplained)


def test_being_sent_away_and_a_broken_connection_count_as_what_they_are() -> None:
    away = account(lambda request_id, body: (503, request_id, {"Retry-After": "1"}, b'{"error": "stopping"}'))
    assert away.ends.keys() == {End.LATER}
    broken = account(lambda request_id, body: (0, "", {}, b""))
    assert broken.ends.keys() == {End.BROKEN}


def scenario(*may: End) -> Scenario:
    return Scenario(name="a fault", run=lambda chaos: "", may=frozenset(may))


def test_a_scenario_is_failed_by_any_end_that_it_does_not_explain() -> None:
    ledger = Ledger()
    for end in (End.RIGHT, End.BROKEN):
        ledger.sent()
        ledger.ended(end)
    assert verdict(scenario(End.BROKEN), ledger, "fine").faults == ()
    assert "nothing explains" in verdict(scenario(), ledger, "fine").faults[0]
    ledger.sent()
    assert "have no end" in verdict(scenario(End.BROKEN), ledger, "fine").faults[0]
    ledger.ended(End.UNEXPLAINED, "request-3: 418")
    assert "request-3: 418" in verdict(scenario(End.BROKEN), ledger, "fine").faults[0]
    assert "no request was answered right" in verdict(scenario(), Ledger(), "fine").faults[0]
