"""The report as one HTML file that needs nothing else: no script, no network. Made from the report's JSON alone.

Whatever a server said, and whatever a model is called, is text here: everything is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from loadtests.runs import pictures

__all__ = ["page"]

Json = Mapping[str, Any]

_COLUMNS = (
    ("requests", "n_requests", "{:,}"),
    ("failed", "n_failed", "{:,}"),
    ("requests/s", "requests_per_s", "{:,.1f}"),
    ("mean ms", "mean_ms", "{:,.3g}"),
    ("p50 ms", "p50_ms", "{:,.3g}"),
    ("p90 ms", "p90_ms", "{:,.3g}"),
    ("p99 ms", "p99_ms", "{:,.3g}"),
    ("p99.9 ms", "p999_ms", "{:,.3g}"),
    ("max ms", "max_ms", "{:,.3g}"),
)
_COMPARED = (
    ("requests_per_s", "requests/s", "{:,.1f}"),
    ("p50_ms", "p50 ms", "{:,.3g}"),
    ("p90_ms", "p90 ms", "{:,.3g}"),
    ("p99_ms", "p99 ms", "{:,.3g}"),
    ("p999_ms", "p99.9 ms", "{:,.3g}"),
    ("failed_share", "failed", "{:.2%}"),
)


def page(report: Json) -> str:
    """Return the HTML of a report."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    title = f"Load test of {report['server']['url']}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        + "\n".join(_parts(report))
        + "</main></body></html>\n"
    )


def _parts(report: Json) -> Iterator[str]:
    run, target_ms = report["run"], report["settings"]["p99_ms"]
    badge = '<span class="badge">targets met</span>'
    if not report["is_met"]:
        badge = '<span class="badge missed">target missed</span>'
    yield f"<h1>Load test {badge}</h1>"
    models = ", ".join(each["model"] for each in report["models"])
    yield f'<p class="sub">{escape(models)} at {escape(report["server"]["url"])}, {escape(report["started_at"])}</p>'
    if run is not None:
        yield from _cards(report, run)
    if report["remarks"]:
        yield "<ul class=notes>" + "".join(f"<li>{escape(each)}</li>" for each in report["remarks"]) + "</ul>"
    if report["ramp"] is not None:
        yield from _ramp(report["ramp"])
    if report["comparison"] is not None:
        yield from _comparison(report["comparison"])
    if run is not None:
        yield from _run(report, run, target_ms)
    yield from _targets(report["targets"])
    yield from _settings(report)
    yield from _reading(report)


def _cards(report: Json, run: Json) -> Iterator[str]:
    figures = run["figures"]
    cards = [
        (f"{figures['requests_per_s']:,.0f}", "requests/s answered"),
        (f"{figures['p50_ms']:.3g} ms", "p50"),
        (f"{figures['p99_ms']:.3g} ms", "p99"),
        (f"{figures['p999_ms']:.3g} ms", "p99.9"),
        (f"{figures['failed_share']:.2%}", f"failed, of {figures['n_requests']:,}"),
        (f"{report['generator']['busy']:.0%}", "of a core for the generator"),
    ]
    if report["ramp"] is not None:
        rate = report["ramp"]["capacity_per_s"]
        cards.insert(0, (f"{rate:,.0f}" if rate else "none", "requests/s capacity at the target"))
    yield (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in cards)
        + "</div>"
    )


def _run(report: Json, run: Json, target_ms: float | None) -> Iterator[str]:
    which = "Latency"
    if report["ramp"] is not None:
        which = f"The step at {run['load']['rate']:,.0f} requests/s"
    elif report["comparison"] is not None:
        which = f"{report['comparison']['contenders'][0]['name']}: the run of median throughput"
    yield f"<h2>{escape(which)}</h2>"
    rows = [("all", run["figures"]), *run["by_model"].items()]
    yield _table(
        ["", *(name for name, _, _ in _COLUMNS)],
        [[escape(name), *(form.format(found[key]) for _, key, form in _COLUMNS)] for name, found in rows],
    )
    if run["distribution"]["counts"]:
        yield '<div class="pair">'
        yield _figure(
            "How many answers took how long",
            pictures.histogram(run["distribution"], run["figures"], target_ms=target_ms),
        )
        yield _figure(
            "What the slowest saw",
            pictures.distribution(run["distribution"], n=run["figures"]["n_latencies"], target_ms=target_ms),
        )
        yield "</div>"
    if run["timeline"]:
        yield "<h2>Over time</h2>"
        yield '<div class="pair">'
        has_failed = any(each["failed_per_s"] for each in run["timeline"])
        key = _key(("s1", "right answers"), *([("bad", "failures")] if has_failed else []))
        yield _figure("Throughput" + key, pictures.throughput_over_time(run["timeline"]), is_html=True)
        key = _key(("s1", "p50"), ("s2", "p99"))
        yield _figure(
            "Latency of what ended then" + key,
            pictures.latency_over_time(run["timeline"], target_ms=target_ms),
            is_html=True,
        )
        yield "</div>"
    failures = run["figures"]["failures"]
    yield "<h2>Failures</h2>"
    if failures:
        yield _table(
            ["what", "count", "an example"],
            [[escape(each["kind"]), f"{each['count']:,}", _text(each["example"])] for each in failures],
            text=(2,),
        )
    else:
        yield "<p>None.</p>"


def _ramp(found: Json) -> Iterator[str]:
    yield "<h2>The search for the capacity</h2>"
    rate = found["capacity_per_s"]
    if rate is None:
        sentence = f"No rate held: {found['reason']}."
    else:
        twice = "held twice" if found["is_confirmed"] else "held once, which was not confirmed"
        sentence = f"{rate:,.0f} requests/s {twice}. The search ended as {found['reason']}."
    yield f"<p>{escape(sentence)}</p>"
    picture = pictures.ramp(found)
    if picture:
        yield _figure("p99 of each step" + _key(("s1", "held"), ("bad", "missed")), picture, is_html=True)
    rows = []
    for number, step in enumerate(found["steps"], 1):
        figures = step["figures"]
        verdict = (
            '<span class="met">held</span>' if step["holds"] else f'<span class="missed">{escape(step["miss"])}</span>'
        )
        rows.append(
            [
                str(number),
                f"{step['rate']:,.1f}",
                f"{figures['requests_per_s']:,.1f}",
                f"{figures['p50_ms']:.3g}",
                f"{figures['p99_ms']:.3g}",
                f"{figures['n_failed']:,}",
                f"{step['busy']:.0%}",
                verdict,
            ]
        )
    headers = ["step", "rate", "answered/s", "p50 ms", "p99 ms", "failed", "generator", "verdict"]
    yield _table(headers, rows, text=(7,))


def _comparison(comparison: Json) -> Iterator[str]:
    first, second = comparison["contenders"]
    n_runs = min(len(first["runs"]), len(second["runs"]))
    yield "<h2>Comparison</h2>"
    yield (
        f"<p>{n_runs} interleaved pairs of runs, each server first in turn. Medians; a ratio is the first server's "
        "figure over the second's in the same pair.</p>"
    )
    rows = []
    for key, name, form in _COMPARED:
        ratio = comparison["ratios"].get(key)
        told = f"{ratio['median']:.2f}x" if ratio else ""
        spread = f"{min(ratio['pairs']):.2f} to {max(ratio['pairs']):.2f}" if ratio else ""
        rows.append([name, *(form.format(each["median"][key]) for each in (first, second)), told, spread])
    yield _table(["", escape(first["name"]), escape(second["name"]), "ratio", "lowest to highest"], rows)
    key = _key(("s1", first["name"]), ("s2", second["name"]))
    yield '<p></p><div class="pair">'
    yield _figure("Throughput" + key, pictures.compared(comparison, "requests_per_s", title="requests/s"), is_html=True)
    yield _figure("p99" + key, pictures.compared(comparison, "p99_ms", title="p99, ms"), is_html=True)
    yield "</div>"


def _targets(targets: Sequence[Json]) -> Iterator[str]:
    yield "<h2>Targets</h2>"
    yield _table(
        ["target", "wanted", "got", ""],
        [
            [
                escape(each["name"]),
                f"{each['wanted']:g}",
                f"{each['got']:,.4g}",
                '<span class="met">met</span>' if each["is_met"] else '<span class="missed">missed</span>',
            ]
            for each in targets
        ],
    )


def _settings(report: Json) -> Iterator[str]:
    generator = report["generator"]
    yield "<h2>What was asked, and by whom</h2>"
    yield _table(
        ["model", "weight", "questions", "form", "checked", "inputs"],
        [
            [
                escape(each["model"]),
                f"{each['weight']:g}",
                f"{each['n_questions']:,}",
                each["form"],
                "yes" if each["is_checked"] else "no",
                _text(each["source"]),
            ]
            for each in report["models"]
        ],
        text=(5,),
    )
    limit = "and may have been the limit" if generator["is_limit"] else "and was not the limit"
    n = generator["n_processes"]
    who = "It" if n == 1 else f"The busiest of its {n} processes"
    yield (
        f"<p>Driven by <b>{escape(generator['engine'])}</b>: {escape(generator['reason'])}. {who} was at work for "
        f"{generator['busy']:.0%} of a core, {limit}.</p>"
    )
    yield "<h2>Settings and machine</h2>"
    shown = {**report["settings"], **report["machine"], "tool": report["tool"]}
    del shown["models"]
    yield _table(
        ["", ""],
        [[escape(name), _text(_plain(value))] for name, value in shown.items() if value is not None],
        text=(1,),
        is_headed=False,
    )


def _reading(report: Json) -> Iterator[str]:
    run = report["run"]
    yield "<h2>How to read this</h2>"
    if run is not None and run["load"]["kind"] == "open":
        yield (
            "<p>Open loop: requests were due at their own times, and latency counts from when a request was due, not "
            "from when it could be sent. A server that stalls is charged with all that would have come meanwhile "
            "(no coordinated omission).</p>"
        )
    elif run is not None:
        yield (
            "<p>Closed loop: each caller waits for its answer before it asks again, so that a slow server is asked "
            "less. The latencies are what these callers saw; callers who come at their own times see longer ones "
            "while a server stalls (--rate).</p>"
        )
    yield (
        "<p>Latency is that of right answers; a request without an answer counts with the time until it was given up. "
        "Refusals and errors have no part in it. The warm-up is not counted.</p>"
    )


def _table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, text: tuple[int, ...] = (), is_headed: bool = True
) -> str:
    """Return a table; headers and cells are HTML already."""

    def cells(values: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag} class=text>{value}</{tag}>" if index in text else f"<{tag}>{value}</{tag}>"
            for index, value in enumerate(values)
        )

    head = f"<tr>{cells(headers, 'th')}</tr>" if is_headed else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="table"><table>{head}{body}</table></div>'


def _text(value: str) -> str:
    return f"<code>{escape(value)}</code>" if value else ""


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _key(*series: tuple[str, str]) -> str:
    return '<span class="key">' + "".join(f'<i class="{css}"></i>{escape(name)}' for css, name in series) + "</span>"


def _figure(title: str, picture: str, *, is_html: bool = False) -> str:
    return f"<figure><figcaption>{title if is_html else escape(title)}</figcaption>{picture}</figure>"
