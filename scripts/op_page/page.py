"""The page: every op of ``tf.raw_ops`` that a function of one example can use, with what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from scripts.op_page.calls import probe_calls
from scripts.op_page.classify import Finding, OpClass, classify, has_converter, patterns
from scripts.op_page.families import FAMILIES, family_of
from vectorizer._pfor import has_cpu_kernel

__all__ = ["Entry", "entry_line", "entry_of", "known_classes", "left_out", "ops_in_question", "page", "raw_ops"]

_INTRODUCTION = """\
# Ops

What becomes of each op of TensorFlow {version} in a function of one example. `make op-page` writes this page: for each
op a function that is nothing but this op is converted with operands that differ from row to row, and what stands in the
batched graph decides, not what is registered. A test does the same and fails where this page is not true any more.

| class | ops | |
|---|---|---|
{counts}

A remark names the operands, or the kind of call, for which another class holds: operands that all examples share are
constants or weights, and each example's own are what is computed from its inputs. An op whose inputs are the same for
all examples is run once, whatever its class.
"""

_MEANING = {
    OpClass.BY_US: "runs once for all rows, by a converter of Rowwise",
    OpClass.BY_PFOR: "runs once for all rows, by TensorFlow's own converter",
    OpClass.LOOPED: "has no batched form here: refused by name, or run once for each row if `allow_looped` names it",
    OpClass.EFFECT: "does something besides computing its outputs, which a batch would not do once for each row",
    OpClass.REFUSED: "can't be converted, and a loop over the rows is no way out",
}

_TITLES = {
    OpClass.BY_US: "Vectorized by Rowwise",
    OpClass.BY_PFOR: "Vectorized by pfor",
    OpClass.LOOPED: "Looped by permission",
    OpClass.EFFECT: "Refused: effects",
    OpClass.REFUSED: "Refused",
}

#: Said once, by the class itself.
_PLAIN = (
    "it has no converter",
    "its converter is a loop over the rows",
    "a batch would run it once, not once for each",
)
_INVARIANT = re.compile(r"Input \"\w+\" of op .* expected to be loop invariant.*")


@dataclass(frozen=True)
class Entry:
    """One op of the page."""

    op: str
    kind: OpClass
    remark: str


def raw_ops() -> list[str]:
    """Return the names of ``tf.raw_ops``."""
    return sorted(name for name in dir(tf.raw_ops) if not name.startswith("_"))


def ops_in_question() -> list[str]:
    """Return the ops that a function of one example can use."""
    return [op for op in raw_ops() if family_of(op) is None]


def entry_of(op: str) -> Entry:
    """Classify an op by its usual call, and for the remark by all its other calls too."""
    (_, usual), *variants = probe_calls(op)
    (_, operands), *others = patterns(usual)
    finding = classify(usual, operands)
    found: dict[tuple[str, OpClass, str], list[str]] = {}

    def note(form: str, name: str, other: Finding) -> None:
        if other.kind != finding.kind:
            found.setdefault((form, other.kind, _reason(other)), []).append(name)

    if has_converter(op):
        for name, stacked in others:
            note(
                "where only {} differs" if name.endswith(" alone") else "where {} differs too",
                name,
                classify(usual, stacked),
            )
    for name, variant in variants:
        note("{}", name, classify(variant, next(patterns(variant))[1]))
    remarks = [] if has_cpu_kernel(op) else ["TensorFlow has no kernel for a CPU"]
    remarks += [_reason(finding)] if finding.kind != OpClass.EFFECT or "batch would" not in finding.reason else []
    for (form, kind, reason), names in found.items():
        quoted = [name if form == "{}" else f"`{name.removesuffix(' alone')}`" for name in names]
        said = form.format(" or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted))
        remarks.append(f"{said}: {kind.value}{f' ({reason})' if reason else ''}")
    return Entry(op, finding.kind, "; ".join(remark for remark in remarks if remark))


def _reason(finding: Finding) -> str:
    reason = finding.reason.removeprefix("its converter does not take these operands: ").rstrip(".")
    if reason.startswith(_PLAIN) or _INVARIANT.fullmatch(reason):
        return ""
    return reason.replace("|", r"\|")


def page() -> str:
    """Return the page's text."""
    entries = [entry_of(op) for op in ops_in_question()]
    by_class = {kind: [entry for entry in entries if entry.kind == kind] for kind in _MEANING}
    counts = "\n".join(
        f"| [](#{_anchor(kind)}) | {len(by_class[kind])} | {meaning} |" for kind, meaning in _MEANING.items()
    )
    sections = [_INTRODUCTION.format(version=".".join(tf.__version__.split(".")[:2]), counts=counts)]
    sections += ["\n".join(_section(kind, by_class[kind])) for kind in _MEANING]
    sections.append(left_out())
    return "\n".join(sections)


def _anchor(kind: OpClass) -> str:
    return _TITLES[kind].lower().replace(":", "").replace(" ", "-")


def _section(kind: OpClass, entries: list[Entry]) -> Iterator[str]:
    yield f"({_anchor(kind)})="
    yield f"## {_TITLES[kind]}\n"
    yield "| op | remark |\n|---|---|"
    for entry in entries:
        yield entry_line(entry)
    yield ""


def entry_line(entry: Entry) -> str:
    """Return the entry's line of the table."""
    return f"| `{entry.op}` | {entry.remark} |".replace("  ", " ")


def left_out() -> str:
    """Return the page's part on the families that it leaves out."""
    lines = ["## Left out\n", "No function of one example holds these ops.\n", "| family | ops | why |\n|---|---|---|"]
    ops = raw_ops()
    for family in FAMILIES:
        n_ops = sum(family_of(op) is family for op in ops)
        lines.append(f"| {family.name} | {n_ops} | {family.why} |")
    return "\n".join(lines) + "\n"


def known_classes(text: str) -> dict[str, OpClass]:
    """Read from the page's text which op has which class."""
    classes: dict[str, OpClass] = {}
    kind = None
    for line in text.splitlines():
        if line.startswith("## "):
            kind = next((one for one, title in _TITLES.items() if line == f"## {title}"), None)
        elif kind is not None and (op := re.match(r"\| `(\w+)` \|", line)):
            classes[op[1]] = kind
    return classes
