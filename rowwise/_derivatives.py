"""What a server's derivatives take and give, as its metadata says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rowwise._metadata import RemoteSignature
from rowwise.errors import BadAnswer, WrongInputs

__all__ = ["KINDS", "derivative_signature", "query"]

KINDS = ("gradient", "jacobian", "hessian")


def query(kind: str, output: str | None, wrt: str | Sequence[str] | None) -> dict[str, Any]:
    """Return what a request's body says of its choice. Errors: WrongInputs for a kind that no server answers."""
    if kind not in KINDS:
        raise WrongInputs(f"derivative: expected {', '.join(KINDS)}, got {kind!r}")
    chosen: dict[str, Any] = {}
    if output is not None:
        chosen["output"] = output
    if wrt is not None:
        chosen["wrt"] = [wrt] if isinstance(wrt, str) else list(wrt)
    return chosen


def derivative_signature(metadata: Any, kind: str, chosen: Mapping[str, Any]) -> RemoteSignature:
    """Return the inputs of a derivative, and of its results those that were asked for.

    Where the metadata leaves open which derivative that is, the model's own signature: the server then says what
    there is. Errors: BadAnswer.
    """
    try:
        listed = metadata["metadata"].get("derivatives", [])
        wrt = chosen.get("wrt")
        fitting = [
            entry
            for entry in listed
            if entry["kind"] == kind
            and chosen.get("output") in (None, entry["output"])
            and set(wrt or ()) <= set(entry["wrt"])
        ]
        fitting = [entry for entry in fitting if wrt and set(entry["wrt"]) == set(wrt)] or fitting
        if len(fitting) != 1:
            return RemoteSignature.from_metadata(metadata)
        (entry,) = fitting
        whole = RemoteSignature.from_metadata(metadata, signature=entry["name"])
        kept = wrt or entry["wrt"]
        if kind == "hessian" and len(entry["wrt"]) > 1:
            kept = [f"{a},{b}" for a in kept for b in kept]
        outputs = {name: dtype for name, dtype in whole.outputs.items() if name in kept}
        return replace(whole, outputs=outputs)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadAnswer(f"the server's metadata does not describe a model: {error!r}") from error
