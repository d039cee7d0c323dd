"""``rowwise show``: a model in one look."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from rowwise._metadata import RemoteSignature, Shape
from rowwise.cli.models import models_table
from rowwise.cli.options import AsJson, Ca, ModelName, Token, Url, Version, connected
from rowwise.cli.report import cost_table, costs_of
from rowwise.cli.screen import screen
from rowwise.errors import NotFound, ServerRefused

if TYPE_CHECKING:
    from rowwise.client import Client

__all__ = ["show"]


def show(
    name: ModelName,
    *,
    version: Version = None,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Show a model: its versions and labels, its inputs and outputs, and what each batch size costs.

    Inputs, outputs and costs are those of --version, else of the active version, else of the newest one. The
    certificate as a whole has a command of its own, [bold]rowwise certificate[/bold].

    [bold]Examples[/bold]

        rowwise show digits

        rowwise show digits --version 3 --json | jq .inputs
    """
    with connected(url, token, ca=ca) as client:
        told, costs, statuses = _gather(client, name, version)
    if as_json:
        typer.echo(json.dumps({**told, "versions": [status.to_json() for status in statuses]}, indent=1))
        return
    console = screen()
    console.print(models_table(statuses))
    console.print()
    labels = ", ".join(f"{label} → {leads_to}" for label, leads_to in sorted(told["labels"].items()))
    console.print(Text.assemble(("labels  ", "bold"), labels or "none"))
    if told["why_not"]:
        console.print(Text(f"version {told['version']}: {told['why_not']}", "yellow"))
        return
    console.print()
    console.print(_signature_table(told))
    if told["derivatives"]:
        shown = ", ".join(each["name"] for each in told["derivatives"])
        console.print(Text.assemble(("derivatives  ", "bold"), shown))
    console.print()
    console.print(cost_table(costs))
    summary = told["certificate"]
    console.print(
        Text.assemble(
            ("certificate  ", "bold"),
            f"{summary['vectorized']} ops vectorized, {summary['invariant']} invariant, ",
            (f"{summary['looped']} looped", "red" if summary["looped"] else "green"),
            f"; largest difference {summary['max_abs']:.2g} over {summary['buckets_checked']} buckets",
        ),
        soft_wrap=True,
    )


def _gather(client: Client, name: str, version: int | None) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """Return what is told of a model, the costs of the version it is about, and all versions."""
    statuses = [status for status in client.models() if status.model == name]
    if not statuses:
        raise NotFound(404, f"there is no model {name!r}, or the token does not show it; `rowwise models` lists them")
    active = next((status.version for status in statuses if status.active), None)
    chosen = version or active or max(status.version for status in statuses)
    told: dict[str, Any] = {
        "model": name,
        "active": active,
        "labels": client.labels(name),
        "version": chosen,
        "why_not": "",
        "inputs": {},
        "outputs": {},
        "derivatives": [],
        "buckets": [],
        "certificate": {},
    }
    try:
        metadata = client.metadata(name, chosen)
        costs = client.costs(name, chosen)
        told["certificate"] = client.certificate(name, chosen)["summary"]
    except ServerRefused as error:
        # Not built, failed or not loaded: its versions are told all the same.
        told["why_not"] = str(error)
        return told, {}, statuses
    signature = RemoteSignature.from_metadata(metadata)
    raw = next(iter(metadata["metadata"]["signature_def"]["signature_def"].values()))
    optional = signature.optional
    told["inputs"] = {
        key: {**_tensor(raw["inputs"][key], signature.input_shapes.get(key)), "optional": key in optional}
        for key in signature.inputs
    }
    told["outputs"] = {key: _tensor(raw["outputs"][key], signature.output_shapes.get(key)) for key in signature.outputs}
    told["derivatives"] = metadata["metadata"].get("derivatives", [])
    told["buckets"] = [
        {"rows": cost.rows, "lengths": list(cost.lengths), "cost_s": cost.cost_s, "mode": cost.mode}
        for cost in costs_of(costs)
    ]
    return told, costs, statuses


def _tensor(described: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    name = str(described.get("dtype", "")).removeprefix("DT_").lower()
    dtype = {"float": "float32", "double": "float64", "half": "float16"}.get(name, name)
    return {"dtype": dtype, "shape": None if shape is None else list(shape)}


def _signature_table(told: Mapping[str, Any]) -> Table:
    table = Table("", "name", "one example", "", box=None, header_style="bold")
    for kind in ("inputs", "outputs"):
        for number, (key, tensor) in enumerate(told[kind].items()):
            note = "optional" if tensor.get("optional") else ""
            table.add_row(kind if number == 0 else "", Text(key), Text(_shown(tensor)), note)
    return table


def _shown(tensor: Mapping[str, Any]) -> str:
    shape = tensor["shape"]
    sizes = (
        "any shape" if shape is None else "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
    )
    return f"{tensor['dtype']} {sizes}" if shape is None else f"{tensor['dtype']}{sizes}"
