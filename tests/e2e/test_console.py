"""The console in a browser, against the real server: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from server_process import ServerProcess

from server.rights import digest_of
from tests.web.rights import bearer

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine: apt-get install chromium"),
]

MODEL = "digits"
TOKENS = {"looker": ["read", "predict"], "keeper": ["manage", "predict"]}
#: Times are the machine's, which does other things too: this is against a page that never gets there.
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def guarded(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with tokens, which are spelled as their names, two versions, and an HTTP process beside the engine."""
    store = tmp_path_factory.mktemp("console") / "store"
    shutil.copytree(server.store, store)
    entries = [{"name": name, "sha256": digest_of(name.encode()).hex(), "scopes": may} for name, may in TOKENS.items()]
    options = ("--import-package", "models", "--http-workers", "1")
    with ServerProcess(store, *options, environment={"ROWWISE_TOKENS": json.dumps(entries)}) as running:
        running.wait_ready()
        spec = {"import_path": "models.digits:predict", "buckets": [1, 8]}
        answer = httpx.put(
            f"{running.url}/v1/models/{MODEL}?wait=true", json=spec, headers=bearer("keeper"), timeout=300
        )
        assert answer.status_code == 200, answer.text
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@contextmanager
def opened(browser: Any, address: str, *, refusals: str = "no refusals") -> Iterator[Any]:
    """A new page at an address, without anything in its console and without an error.

    ``refusals``: what of the failed requests that the browser itself tells belongs to the test.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        page.goto(address)
        yield page
        assert [text for text in said if not re.search(f"Failed to load resource: .*({refusals})", text)] == []
    finally:
        context.close()


@contextmanager
def traffic(url: str) -> Iterator[None]:
    """Predictions, one after the other, for as long as the block lasts."""
    stopped = threading.Event()

    def work() -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while not stopped.is_set():
                http.post(f"/v1/models/{MODEL}:predict", json={"instances": [[0.0] * 64] * 3}).raise_for_status()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def live(page: Any) -> None:
    page.wait_for_selector("#stream[data-state=live]")


def until(page: Any, expression: str) -> None:
    """Wait until JavaScript is true. Playwright's own wait evaluates text in the page, which its policy forbids."""
    deadline_s = time.monotonic() + PATIENCE_MS / 1e3
    while not page.evaluate(expression):
        assert time.monotonic() < deadline_s, f"still not: {expression}"
        page.wait_for_timeout(50)


def signed_in(page: Any, token: str) -> None:
    page.click("#session")
    page.fill("dialog input", token)
    page.keyboard.press("Enter")
    live(page)


def test_it_shows_traffic_as_it_comes(server: ServerProcess, browser: Any) -> None:
    with opened(browser, server.url + "/") as page, traffic(server.url):
        live(page)
        paints = page.evaluate("performance.getEntriesByType('paint').map((paint) => paint.startTime)")
        print(f"first paint of the console after {max(paints):.0f} ms", file=sys.stderr)
        until(page, "parseFloat(document.querySelector('[data-tile=rows]').textContent) > 0")
        until(page, "document.querySelector('[data-tile=p99]').textContent.length > 1")
        row = page.locator(f"tr:has(a[href^='#/models/{MODEL}/'])")
        assert "available" in row.inner_text()
        # The charts' library comes later, and draws all four.
        until(page, "document.querySelectorAll('.plot .main-svg .scatterlayer .trace').length >= 8")
        page.goto(server.url + "/#/batches")
        page.wait_for_selector("text=and this makes all callers wait least")


def test_a_digit_that_is_drawn_and_one_in_json_are_answered_with_where_the_time_went(
    server: ServerProcess, browser: Any
) -> None:
    with opened(browser, f"{server.url}/#/try/{MODEL}", refusals="status of 400") as page:
        page.locator(".sheet").wait_for(state="visible")
        # It has no place for a moment where the page is drawn anew, once it is known who looks.
        box = next(
            found for _ in range(100) if (found := page.locator(".sheet").bounding_box()) or page.wait_for_timeout(50)
        )
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for step in range(33):
            turn = step / 32 * 2 * math.pi
            page.mouse.move(x + 0.2 * box["width"] * math.sin(turn), y - 0.35 * box["height"] * math.cos(turn))
            if step == 0:
                page.mouse.down()
        page.mouse.up()
        page.wait_for_selector(".bars .most")
        assert page.locator(".bars .most").get_attribute("data-place") == "0", "a ring is a zero"
        for step in ("queue", "compute", "rest"):
            assert page.locator(f"[data-step={step}]").inner_text()
        assert "bucket" in page.locator("[data-batch]").inner_text()

        page.fill("textarea", '{"instances": [[1, 2]]}')
        page.click("[data-act=predict]")
        page.wait_for_selector("[data-status='400']")
        assert "64" in page.locator("[data-status='400']").inner_text()
        page.fill("textarea", json.dumps({"instances": [[0.0] * 64, [1.0] * 64]}))
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("text=predictions")
        assert page.locator(".answer pre").inner_text().count("[") == 3


def test_a_version_is_shown_with_its_certificate_and_its_costs_and_is_switched_by_keyboard(
    guarded: ServerProcess, browser: Any
) -> None:
    with opened(browser, guarded.url + "/", refusals="status of 401") as page:
        signed_in(page, "keeper")
        assert "keeper" not in page.url
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        page.goto(guarded.url + f"/#/models/{MODEL}/2")
        page.wait_for_selector("#certificate td:has-text('MatMul')")
        page.wait_for_selector("text=with so many rows waiting the batch size is")
        page.wait_for_selector("button[data-act=activate]").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog button.danger").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".toast.good")
        page.wait_for_selector(f"tr:has(a[href='#/models/{MODEL}/1']) .active")
        answer = httpx.get(f"{guarded.url}/v2/models/{MODEL}", headers=bearer("keeper"))
        assert answer.json()["versions"] == ["1"]


def test_without_the_right_nothing_is_offered_and_nothing_is_done(guarded: ServerProcess, browser: Any) -> None:
    with opened(browser, guarded.url + "/", refusals="status of (401|403)") as page:
        page.wait_for_selector("#banner:has-text('a token is needed')")
        assert page.locator("#stream").get_attribute("data-state") == "refused"
        signed_in(page, "looker")
        page.goto(guarded.url + f"/#/models/{MODEL}/2")
        page.wait_for_selector("[data-no-right=manage]")
        assert page.locator("[data-act=activate], [data-act=rollback], [data-act=unload]").count() == 0
        status = page.evaluate(
            "import('/console/api.js').then((api) => api.send('POST', '/v1/models/digits/versions/2:activate'))"
            ".then((answer) => answer.status)"
        )
        assert status == 403


def test_another_page_reads_and_changes_nothing_without_a_token(server: ServerProcess, browser: Any) -> None:
    """A page of another origin, on this machine too: its requests fail, and what it would change stays."""
    before = httpx.get(server.url + "/v1/models").json()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.route(
            "http://elsewhere.localhost:8099/",
            lambda route: route.fulfill(body="<h1>elsewhere</h1>", content_type="text/html"),
        )
        page.goto("http://elsewhere.localhost:8099/")
        for method, path in (
            ("GET", "/v1/models"),
            ("GET", "/v1/console/live"),
            ("POST", f"/v1/models/{MODEL}:rollback"),
        ):
            outcome = page.evaluate(
                "([method, url]) => fetch(url, {method, headers: {'X-Rowwise-Console': '1'}})"
                ".then((answer) => answer.status, () => 'refused')",
                [method, server.url + path],
            )
            assert outcome == "refused"
            sent = page.evaluate(
                "([method, url]) => fetch(url, {method, mode: 'no-cors'})"
                ".then((answer) => answer.type, () => 'refused')",
                [method, server.url + path],
            )
            assert sent in {"opaque", "refused"}
    finally:
        context.close()
    assert httpx.get(server.url + "/v1/models").json() == before


def test_a_server_with_viewers_stops_at_once(guarded: ServerProcess, browser: Any) -> None:
    with opened(browser, guarded.url + "/", refusals="401|net::ERR_CONNECTION_REFUSED") as page:
        signed_in(page, "looker")
        until(page, "document.querySelector('[data-tile=rows]').textContent === '0/s'")
        # Without an end of its streams it would wait through its grace period, 30 s, and say so.
        assert guarded.terminate(timeout_s=25) == 0
        assert "grace" not in guarded.log
        page.wait_for_selector("#stream[data-state=lost]")
        page.goto("about:blank")
