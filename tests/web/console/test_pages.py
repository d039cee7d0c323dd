"""The page and its files: open, compressed, remembered, and held to a policy that lets nothing of strangers run."""

from __future__ import annotations

import gzip
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from server.web.console import assets
from server.web.console.assets import PLOTLY, Assets
from tests.web.rights import tokens
from tests.web.scripted import REMOTE, ScriptedBatches, Service

STATIC = Path(assets.__file__).with_name("static")


@pytest.fixture
def made(tmp_path: Path) -> Service:
    return Service(tmp_path, batches=ScriptedBatches())


def test_the_page_is_there_for_everybody_with_a_policy_against_what_is_not_its_own(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches(), tokens=tokens())
    for client in (("127.0.0.1", 1), REMOTE):
        answer = made.request("GET", "/", client=client)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert "unsafe" not in str(policy)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


class Read(HTMLParser):
    """What a page loads, and what in it is not in files of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self._in = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attributes)
        self._in = tag
        self.loaded += [given[name] for name in ("src", "href") if name in given and not given[name].startswith("#")]
        self.inline += [name for name in given if name == "style" or name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self._in in {"script", "style"} and data.strip():
            self.inline.append(data)


def test_all_that_the_page_loads_is_here_and_nothing_is_inline(made: Service) -> None:
    page = Read()
    page.feed(made.request("GET", "/").text)
    assert page.inline == []
    assert "/console/main.js" in page.loaded
    for path in page.loaded:
        assert path.startswith("/console/"), path
        answer = made.request("GET", path)
        assert answer.status_code == 200, path
        assert re.match(r"(text/(css|javascript)|image/svg\+xml)", answer.headers["content-type"])


def test_modules_import_what_is_there_and_the_page_loads_all_of_them_at_once() -> None:
    page = (STATIC / "index.html").read_text()
    for module in STATIC.glob("*.js"):
        assert f'"/console/{module.name}"' in page, "it would be found only when another one has come"
        for name in re.findall(r'from "\./([^"]+)"', module.read_text()):
            assert (STATIC / name).is_file(), (module.name, name)


@pytest.mark.parametrize(
    "way", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
)
def test_no_module_takes_text_for_html_or_code(way: str) -> None:
    assert [module.name for module in STATIC.glob("*.js") if way in module.read_text()] == []


def test_the_token_is_kept_for_the_tab_alone_and_is_in_no_address() -> None:
    kept = {module.name for module in STATIC.glob("*.js") if "sessionStorage" in module.read_text()}
    assert kept == {"api.js"}
    lasting = {
        module.name: module.read_text() for module in STATIC.glob("*.js") if "localStorage" in module.read_text()
    }
    assert set(lasting) == {"main.js", "theme.js"}
    assert all("token" not in text for text in lasting.values())


def test_a_file_that_is_known_is_not_sent_again(made: Service) -> None:
    first = made.request("GET", "/console/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = made.request("GET", "/console/main.js", headers={"if-none-match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert made.request("GET", "/console/main.js", headers={"if-none-match": '"other"'}).status_code == 200


def test_files_are_compressed_for_who_takes_that(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches())
    text = (STATIC / "console.css").read_bytes()
    packed = made.request("GET", "/console/console.css", headers={"accept-encoding": "br, gzip;q=0.8"})
    assert (packed.headers["content-encoding"], packed.content) == ("gzip", text)
    assert int(packed.headers["content-length"]) < len(text) / 2
    for accepted in ("identity", "gzip;q=0", "deflate"):
        plain = made.request("GET", "/console/console.css", headers={"accept-encoding": accepted})
        assert "content-encoding" not in plain.headers
        assert plain.content == text


def test_the_charts_library_is_the_installed_one_and_kept_for_a_day(made: Service) -> None:
    answer = made.request("GET", f"/console/{PLOTLY}")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "max-age=86400"
    assert b"plotly.js v" in answer.content[:200]


@pytest.mark.parametrize("name", ["missing.js", "..%2f..%2fsettings.py", "%2e%2e", "assets.py", "index.html.gz"])
def test_nothing_else_is_served(made: Service, name: str) -> None:
    assert made.request("GET", f"/console/{name}").status_code == 404


def test_a_console_that_is_turned_off_is_not_there(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches(), console=False)
    for path in ("/", "/console/main.js", "/v1/console/session", "/v1/console/live"):
        assert made.request("GET", path).status_code == 404
    assert made.request("GET", "/v1/models").status_code == 200


def test_without_the_charts_library_the_rest_is_there(tmp_path: Path) -> None:
    (tmp_path / "page.js").write_text("1")
    (tmp_path / "secret.py").write_text("1")
    found = Assets(tmp_path, None)
    assert found.names == ("page.js",)
    asset = found.find("page.js")
    assert asset is not None
    asset.prepare()
    assert gzip.decompress(asset.gzipped) == asset.plain() == b"1"
