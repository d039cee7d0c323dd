"""Pictures of the console for the manual: the real server under load, in Debian's chromium.

python -m scripts.console_screenshots
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer

from loadtests.contenders import Server, rowwise_command

ROOT = Path(__file__).parents[1]
#: Bytes of a picture, at most: they are in the repository.
_MOST_BYTES = 200_000
_WIDE, _NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@contextmanager
def _traffic(url: str, n_callers: int) -> Iterator[None]:
    """Callers who come and go, with a few examples each."""
    stopped = threading.Event()

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(base_url=url, timeout=60) as http:
            while not stopped.is_set():
                rows = rng.random((int(rng.integers(1, 10)), 64)).round(3).tolist()
                http.post("/v1/models/digits:predict", json={"instances": rows}).raise_for_status()
                # More at some times than at others.
                time.sleep(0.02 * (1.2 + math.sin(time.monotonic() / 6)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(n_callers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _draw_three(page: Any) -> None:
    box = page.locator(".sheet").bounding_box()
    left, top, size = box["x"], box["y"], box["width"]

    def arc(middle: float, first: float, last: float, *, begin: bool) -> None:
        for step in range(25):
            turn = first + (last - first) * step / 24
            page.mouse.move(left + size * (0.48 + 0.17 * math.sin(turn)), top + size * (middle - 0.17 * math.cos(turn)))
            if begin and step == 0:
                page.mouse.down()

    arc(0.31, -1.2, math.pi, begin=True)
    arc(0.66, 0.0, math.pi + 1.2, begin=False)
    page.mouse.up()
    page.wait_for_selector(".bars .most")


def _take(page: Any, path: Path, **options: Any) -> None:
    page.screenshot(path=path, **options)
    n_bytes = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {n_bytes / 1e3:.0f} kB")
    if n_bytes > _MOST_BYTES:
        raise SystemExit(f"{path} has {n_bytes} bytes: {_MOST_BYTES} are allowed")


def _pictures(url: str, directory: Path, *, history_s: float) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme, name in (("light", "console"), ("dark", "console-dark")):
            page = browser.new_page(viewport=_WIDE, color_scheme=scheme)
            page.set_default_timeout(120_000)
            page.goto(url + "/")
            page.wait_for_selector("#stream[data-state=live]")
            # Who comes later is shown the last minute.
            page.wait_for_timeout(1e3 * (history_s if scheme == "light" else 5))
            _take(page, directory / f"{name}.png")
            if scheme == "light":
                page.goto(url + "/#/models/digits")
                page.wait_for_selector("#certificate td")
                page.wait_for_selector(".plot.tall .trace")
                page.wait_for_timeout(4_000)
                _take(page, directory / f"{name}-model.png", full_page=True)
                page.goto(url + "/#/try/digits")
                _draw_three(page)
                _take(page, directory / "console-try.png")
                page.goto(url + "/#/batches")
                page.wait_for_selector("tbody tr")
                _take(page, directory / "console-batches.png", clip={"x": 0, "y": 0, "width": 1280, "height": 520})
            page.close()
        page = browser.new_page(viewport=_NARROW, color_scheme="light", has_touch=True)
        page.set_default_timeout(120_000)
        page.goto(url + "/")
        page.wait_for_selector(".plot .trace")
        page.wait_for_timeout(4_000)
        _take(page, directory / "console-narrow.png")
        browser.close()


def _command(
    store: Annotated[
        Path | None, typer.Option(help="A store with the digits model, copied; saves building it.")
    ] = None,
    directory: Annotated[Path, typer.Option(help="Where the pictures go.")] = ROOT / "docs" / "figures",
    n_callers: Annotated[int, typer.Option("--callers", min=1)] = 8,
    history_s: Annotated[float, typer.Option("--history", min=0.0, help="Seconds of traffic in the charts.")] = 60.0,
) -> None:
    """Take the pictures."""
    if shutil.which("chromium") is None:
        sys.exit("there is no chromium on this machine: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="rowwise-console-") as name:
        kept = Path(name) / "store"
        if store is not None:
            shutil.copytree(store, kept)
        with (
            Server(
                "rowwise serve", lambda port: rowwise_command(port, store=kept, models=["digits"]), timeout_s=900
            ) as server,
            _traffic(server.url, n_callers),
        ):
            _pictures(server.url, directory, history_s=history_s)


if __name__ == "__main__":
    typer.run(_command)
