"""The report as JSON: every figure with its unit in its name, described by ``report.schema.json`` beside this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadtests.runs.choice import Choice
from loadtests.runs.figures import curves, figures, figures_by_model, timeline
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations
from loadtests.runs.questions import Questions
from loadtests.runs.ramp import Ramp
from loadtests.runs.verdict import Target, Targets, is_generator_limit
from loadtests.runs.versus import Versus

__all__ = ["SCHEMA", "SCHEMA_FILE", "document", "models_json", "ramp_json", "run_json"]

#: Changes when a reader of the old one would misread the new one.
SCHEMA = "rowwise-loadtest/1"
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


def run_json(load: Load, seen: Observations) -> dict[str, Any]:
    """Return one run: its load, figures, curves and stretches."""
    by_model = figures_by_model(seen) if len(seen.models) > 1 else {}
    return {
        "load": {**asdict(load), "kind": "open" if load.is_open else "closed"},
        "elapsed_s": seen.elapsed_s,
        "busy": seen.busy,
        "n_waited": seen.n_waited,
        "figures": figures(seen).to_json(),
        "by_model": {name: found.to_json() for name, found in by_model.items()},
        "timeline": [asdict(interval) for interval in timeline(seen)],
        "distribution": {name: list(values) for name, values in asdict(curves(seen)).items()},
    }


def models_json(questions: Sequence[Questions]) -> list[dict[str, Any]]:
    """Return what was asked."""
    return [
        {
            "model": each.model,
            "weight": each.weight,
            "n_questions": len(each.questions),
            "source": each.source,
            "form": "binary" if each.is_binary else "json",
            "is_checked": each.is_checked,
            "tolerance": each.tolerance,
        }
        for each in questions
    ]


def ramp_json(ramp: Ramp, targets: Targets) -> dict[str, Any]:
    """Return what a ramp tried and found."""
    return {
        "target_p99_ms": targets.p99_ms,
        "target_max_errors": targets.max_errors,
        "capacity_per_s": ramp.capacity.rate,
        "is_confirmed": ramp.capacity.is_confirmed,
        "reason": ramp.capacity.reason,
        "steps": [
            {"rate": step.rate, "holds": step.miss is None, "miss": step.miss, "busy": step.busy}
            | {"figures": step.figures.to_json()}
            for step in ramp.steps
        ],
    }


def document(
    *,
    tool: str,
    started_at: str,
    url: str,
    is_this_machine: bool,
    settings: Mapping[str, Any],
    machine: Mapping[str, str],
    others_cores: float,
    models: list[dict[str, Any]],
    choice: Choice,
    n_processes: int,
    seen: Observations | None,
    load: Load | None,
    ramp: dict[str, Any] | None = None,
    versus: Versus | None = None,
    judged: Sequence[Target] = (),
    said: Sequence[str] = (),
    is_interrupted: bool = False,
) -> dict[str, Any]:
    """Put a report together."""
    return {
        "schema": SCHEMA,
        "tool": tool,
        "started_at": started_at,
        "server": {"url": url, "is_this_machine": is_this_machine},
        "settings": dict(settings),
        "machine": {**machine, "others_cores": others_cores},
        "models": models,
        "generator": {
            "engine": choice.engine,
            "reason": choice.reason,
            "n_processes": n_processes,
            "busy": seen.busy if seen else 0.0,
            "is_limit": seen is not None and is_generator_limit(seen),
        },
        "run": run_json(load, seen) if seen is not None and load is not None else None,
        "ramp": ramp,
        "comparison": versus.to_json() if versus is not None else None,
        "targets": [asdict(target) for target in judged],
        "is_met": all(target.is_met for target in judged),
        "remarks": list(said),
        "is_interrupted": is_interrupted,
    }
