"""A declared function -> an artifact: vectorized, checked, measured, written.

The order matters. Every compiled form of every bucket of every entry point is written, each is
timed in a session as the engine will run it, the final SavedModel with the winners alone is written, and each of them
is checked once more in exactly the file, form and session that will serve. One that answers otherwise there loses its
place to the next.
"""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from server.artifact import (
    CERTIFICATE_FILE,
    COSTS_FILE,
    PREDICT,
    SAVED_MODEL_DIR,
    Manifest,
)
from server.build.candidates import Candidates
from server.build.declaration import Declaration
from server.build.entry_points import EntryPoint, entry_points
from server.build.footprint import Footprint, variables_bytes
from server.build.forms import save_forms
from server.build.invariant_forms import AgreeingForms, refuse_unless_invariant
from server.build.measure import measure
from server.build.served_check import ServedCheck, check_served
from server.graph_checks.check import check_saved_model
from vectorizer import Vectorized

__all__ = ["Report", "build_artifact"]

#: Called as ``report(stage, done, total)`` with the stages of ``server.build.request``.
Report = Callable[[str, int, int], None]


def build_artifact(declaration: Declaration, output: Path, *, name: str, version: int, report: Report) -> Manifest:
    """Build an artifact into the empty directory ``output`` and return its manifest.

    Errors: the vectorizer's errors; GraphRefused for a graph that no engine would load; BuildFailed if a bucket runs in
        no execution mode, or none can serve in invariant mode where the spec asks for it.
    """
    spec = declaration.spec
    vectorized = declaration.vectorized(partitioned=True, progress=report)
    entries = entry_points(vectorized, keeps_all_buckets=spec.buckets != "auto")
    forms = {form: graph for entry in entries for form, graph in entry.forms.items()}
    report("measure", 0, 1)
    candidates = Candidates.write(vectorized, declaration, forms, output / "candidates")
    for done, entry in enumerate(entries):
        entry.measurements = measure(
            {form: candidates.paths[form] for form in entry.forms},
            feeds=entry.feeds,
            outputs=[*(tensor.name for tensor in entry.signature.outputs), *entry.signature.length_outputs],
            progress=lambda part, whole, done=done: report("measure", done * whole + part, len(entries) * whole),  # type: ignore[misc]
        )
        if spec.invariant:
            entry.agreeing = AgreeingForms.find(
                entry.vectorized,
                candidates.paths[next(iter(entry.forms))],
                entry.measurements,
                tolerance=spec.tolerance,
                entry=entry.name,
            )
    report("write", 0, 2)
    checked, footprint = _write_what_serves(vectorized, declaration, entries, candidates, output / SAVED_MODEL_DIR)
    report("write", 1, 2)
    predict, *derivatives = entries
    invariant = {entry.name: entry.invariant_costs(checked[entry.name]) for entry in entries}
    if spec.invariant:
        refuse_unless_invariant(each for costs in invariant.values() for each in costs)
    manifest = Manifest(
        name=name,
        version=version,
        signature=predict.signature,
        entries={entry.name: entry.compiled_graphs() for entry in entries},
        derivatives={entry.name: entry.derivative_entry() for entry in derivatives},
        bitwise_groups={name: check.bits.steady_groups() for name, check in checked.items()},
        invariant=spec.invariant,
        tensorflow_version=tf.__version__,
        built_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    certificates = {
        entry.name: {**entry.certificate(checked[entry.name]).to_dict(), "invariant": invariant[entry.name]}
        for entry in entries
    }
    certificate = {
        **certificates[PREDICT],
        "derivatives": {entry.name: certificates[entry.name] for entry in derivatives},
    }
    costs = {
        "format_version": 1,
        "entries": {entry.name: entry.costs() for entry in entries},
        "invariant": invariant,
        "memory": {"variables_bytes": variables_bytes(vectorized), "resident_bytes": footprint.resident_bytes},
    }
    (output / CERTIFICATE_FILE).write_text(json.dumps(certificate, indent=1, allow_nan=False) + "\n")
    (output / COSTS_FILE).write_text(json.dumps(costs, indent=1) + "\n")
    manifest.write(output)
    report("write", 2, 2)
    return manifest


def _write_what_serves(
    vectorized: Vectorized,
    declaration: Declaration,
    entries: Sequence[EntryPoint],
    candidates: Candidates,
    final: Path,
) -> tuple[dict[str, ServedCheck], Footprint]:
    """Write the winners' SavedModel, with the next best in place of what answers otherwise in it than the function.

    Return the check of each entry point in what was written, and the memory that it takes.
    """
    forms = {form: graph for entry in entries for form, graph in entry.forms.items()}
    while True:
        winners = set().union(*(entry.choose() for entry in entries))
        if not candidates.hand_over(winners, final):
            save_forms(vectorized, declaration, {form: forms[form] for form in forms if form in winners}, final)
            # Its parts passed; together they may be too large.
            check_saved_model(final, serves=True)
        footprint = Footprint()
        checked = {}
        for entry in entries:
            checked[entry.name] = check_served(
                entry.vectorized,
                final,
                {bucket: measurement.candidate.mode for bucket, measurement in entry.chosen.items()},
                tolerance=declaration.spec.tolerance,
                entry=entry.name,
                footprint=footprint,
            )
            for bucket, reason in checked[entry.name].unfaithful.items():
                entry.chosen[bucket].error = reason
        if not any(check.unfaithful for check in checked.values()):
            return checked, footprint
        shutil.rmtree(final)
