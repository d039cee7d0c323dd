"""Tables, verdicts and raw numbers of a run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.rounds import median_ratio

__all__ = ["Line", "geometric_mean", "table", "write_report"]

#: In the order of the tables.
COLUMNS = ("by hand", "vectorized_map", "map_fn", "while_loop", "one by one", "jax.vmap", "dynet autobatch", "dynet")


@dataclass(slots=True, kw_only=True)
class Line:
    """What was measured of one model and batch size: each contender's time of a batch, round by round, seconds."""

    model: str
    rows: int
    times_s: dict[str, list[float]]
    #: Why a contender could not be timed.
    missing: dict[str, str] = field(default_factory=dict)

    def faster_form(self, name: str) -> str | None:
        """Return the fastest of a contender's forms: graph or XLA, masked or partitioned; None if none ran."""
        forms = [form for form in self.times_s if form == name or set(_rest(form, name)) & {"partitioned", "xla"}]
        return min(forms, key=lambda form: statistics.median(self.times_s[form]), default=None)

    def multiple(self, name: str) -> float | None:
        """Return how many times as long as ours a contender takes, each in its faster form."""
        ours, other = self.faster_form("ours"), self.faster_form(name)
        return None if ours is None or other is None else median_ratio(self.times_s[other], self.times_s[ours])

    def cells(self) -> list[str]:
        """Return the line of a table."""
        ours = self.faster_form("ours")
        compiler = "XLA" if ours and ours.endswith("xla") else "graph"
        cells = [self.model, str(self.rows)]
        if ours is None:
            cells += ["fails", "-"]
        else:
            form = f"{compiler}, partitioned" if "partitioned" in ours else compiler
            cells += [f"{statistics.median(self.times_s[ours]) * 1e6:,.0f}", form]
        for name in COLUMNS:
            multiple = self.multiple(name)
            if multiple is not None:
                form = self.faster_form(name) or ""
                cells.append(f"{multiple:.2f}" + (" (XLA)" if form.endswith("xla") else ""))
            else:
                cells.append("fails" if name in self.missing else "-")
        return cells

    def text(self) -> str:
        """Return the line for a console."""
        model, rows, ours, form, *others = self.cells()
        named = [f"{name} {cell}" for name, cell in zip(COLUMNS, others, strict=True) if cell != "-"]
        return f"{model:<16}{rows:>4}{ours:>12} us {form:<17}" + "  ".join(named)


def _rest(form: str, name: str) -> list[str]:
    return form.removeprefix(f"{name} ").split() if form.startswith(f"{name} ") else []


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return statistics.geometric_mean(values)


def table(lines: Sequence[Line]) -> str:
    """Return a table in Markdown: a column for each contender that any line has."""
    rows = [["model", "rows", "ours, µs", "form", *COLUMNS], *(line.cells() for line in lines)]
    used = [index for index in range(len(rows[0])) if index < 4 or any(row[index] != "-" for row in rows[1:])]
    text = [" | ".join(row[index] for index in used) for row in rows]
    return "\n".join([f"| {text[0]} |", "|" + "---|" + "---:|" * (len(used) - 1), *(f"| {row} |" for row in text[1:])])


def write_report(
    lines: Sequence[Line],
    *,
    title: str,
    machine: str,
    directory: Path,
    verdicts: Callable[[Sequence[Line]], list[str]] | None = None,
) -> None:
    """Write table, reasons and verdicts as Markdown, every timing as JSON, and a picture."""
    from benchmarks.pictures import draw

    directory.mkdir(parents=True, exist_ok=True)
    reasons = [
        f"- {line.model}, {line.rows} rows, {name}: {reason}" for line in lines for name, reason in line.missing.items()
    ]
    text = "\n".join(
        [
            f"# {title}",
            "",
            f"{machine}. Time of a batch as a multiple of ours, medians of rounds; below 1 is faster than ours.",
            "",
            table(lines),
            "",
            *(verdicts(lines) if verdicts else []),
            "",
            *(["Not measured:", "", *reasons] if reasons else []),
        ]
    )
    (directory / f"{title}.md").write_text(text + "\n")
    content = {"machine": machine, "lines": [asdict(line) for line in lines]}
    (directory / f"{title}.json").write_text(json.dumps(content, indent=1))
    draw(lines, title=title, path=directory / f"{title}.png")
