"""The report: its JSON is what the schema says, its page stands alone, and both hold what was seen."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import jsonschema
import pytest

from loadtests.runs.charts import Axis, Chart, nines
from loadtests.runs.choice import Choice
from loadtests.runs.document import SCHEMA_FILE, document, models_json, ramp_json
from loadtests.runs.figures import figures
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations, Observer
from loadtests.runs.page import page
from loadtests.runs.questions import Question, Questions
from loadtests.runs.ramp import Ramp, Step
from loadtests.runs.search import Capacity
from loadtests.runs.summary import summary
from loadtests.runs.verdict import Targets, remarks
from loadtests.runs.versus import Contender, Versus
from loadtests.terminal import terminal

NASTY = "<script>alert('x')</script>"


def seen_of(n: int = 500, *, busy: float = 0.2, failing: int = 5) -> Observations:
    observer = Observer(["digits", NASTY])
    for number in range(n):
        due_s = number * 4 / n
        outcome = observer.failure("status 503", f"busy {NASTY}") if number < failing else 0
        observer.add(number % 2, due_s, due_s, due_s + 0.002 + 0.001 * (number % 7), outcome)
    return observer.finish(warmup_s=0.0, elapsed_s=4.0, busy=busy, is_interrupted=False)


def report_of(seen: Observations | None, **options: Any) -> dict[str, Any]:
    load = Load(rate=125.0)
    targets = Targets(p99_ms=5.0, max_errors=0.1)
    questions = [Questions(model=name, path="/p", questions=(Question(body=b"{}"),)) for name in ("digits", NASTY)]
    made = document(
        tool="rowwise 0",
        started_at="2030-01-01T00:00:00+00:00",
        url="http://127.0.0.1:1",
        is_this_machine=True,
        settings={"p99_ms": 5.0, "models": {NASTY: 1}, "check": True},
        machine={"CPU": "one"},
        others_cores=0.0,
        models=models_json(questions),
        choice=Choice(engine="driver", reason="a reason"),
        n_processes=2,
        seen=seen,
        load=load,
        judged=targets.judge(figures(seen)) if seen else (),
        said=list(remarks(load, seen, figures(seen), is_checked=False)) if seen else (),
        **options,
    )
    return json.loads(json.dumps(made))


def ramp_report() -> dict[str, Any]:
    numbers = figures(seen_of())
    steps = [
        Step(rate=100.0, miss=None, busy=0.1, figures=numbers),
        Step(rate=200.0, miss=f"p99 {NASTY}", busy=0.2, figures=numbers),
    ]
    capacity = Capacity(rate=100.0, is_confirmed=False, reason="5 steps were allowed")
    found = Ramp(capacity=capacity, steps=steps)
    return report_of(seen_of(), ramp=ramp_json(found, Targets(p99_ms=5.0)))


def comparison_report() -> dict[str, Any]:
    runs = [figures(seen_of(n)) for n in (400, 500, 600)]
    crew: Any = None
    first = Contender(name="first", url="http://127.0.0.1:1", crew=crew, runs=runs, busy=[0.1] * 3)
    second = Contender(name=NASTY, url="http://127.0.0.1:2", crew=crew, runs=runs[::-1], busy=[0.1] * 3)
    return report_of(seen_of(), versus=Versus(contenders=(first, second)))


REPORTS = {
    "a run": lambda: report_of(seen_of()),
    "a run without failures": lambda: report_of(seen_of(failing=0)),
    "a run of nothing": lambda: report_of(seen_of(0)),
    "a run of failures": lambda: report_of(seen_of(20, failing=20)),
    "no run": lambda: report_of(None),
    "a ramp": ramp_report,
    "a comparison": comparison_report,
}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [f"{tag} {name}={value}" for name, value in attrs if name in {"src", "href", "onload"}]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("kind", REPORTS)
def test_the_json_is_what_the_schema_says(kind: str) -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(REPORTS[kind]())


@pytest.mark.parametrize("kind", REPORTS)
def test_the_page_stands_alone_and_runs_nothing(kind: str) -> None:
    text = page(REPORTS[kind]())
    reader = Reader()
    reader.feed(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert reader.outside == []
    assert NASTY in reader.text, "what a server or a model is called is text"
    assert "url(" not in text
    assert len(text) < 300_000
    assert "nan" not in text.lower().replace("tenan", "")


@pytest.mark.parametrize("kind", REPORTS)
def test_the_terminal_is_told_too(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal()
    for each in summary(REPORTS[kind]()):
        console.print(each)
    assert "Driven by driver: a reason" in " ".join(capsys.readouterr().out.split())


def test_the_page_says_what_was_seen() -> None:
    reader = Reader()
    reader.feed(page(report_of(seen_of())))
    for expected in ("p99.9 ms", "status 503", "target missed", "no coordinated omission", "123.8", "not the limit"):
        assert expected in reader.text, expected
    assert reader.tags.count("svg") == 4


def test_the_generators_limit_is_said() -> None:
    made = report_of(seen_of(busy=0.97))
    assert made["generator"]["is_limit"]
    assert any("may have been the limit" in remark for remark in made["remarks"])


def test_targets_that_are_missed_are_named() -> None:
    missed = {target["name"] for target in report_of(seen_of())["targets"] if not target["is_met"]}
    assert missed == {"p99, ms"}
    assert not report_of(seen_of())["is_met"]
    assert {target["name"] for target in report_of(seen_of(20, failing=20))["targets"] if not target["is_met"]} == {
        "right answers",
        "share of failures",
        "p99, ms",
    }


def test_a_logarithmic_axis_puts_equal_ratios_at_equal_distances() -> None:
    axis = Axis(title="", low=1, high=100, is_log=True)
    assert axis.share(10) == pytest.approx(0.5)
    assert [axis.share(value) for value in (0.1, 1_000)] == [0, 1]
    assert nines(0.99) == pytest.approx(2 * nines(0.9))


def test_a_broken_line_begins_anew() -> None:
    axis = Axis(title="t", low=0, high=10)
    chart = Chart(axis, axis, label="l")
    chart.line([(0, 0), (1, 1), None, (2, 2), (3, 3)], "s1")
    found = re.search(r'class="line s1" d="([^"]*)"', chart.svg())
    assert found is not None
    assert found[1].count("M") == 2
    assert found[1].count("L") == 2
