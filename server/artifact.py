"""The compiled model on disk, as the builder writes it and the engine reads it.

::

    <artifact>/
      model.json         the manifest below
      certificate.json   how each op was vectorized and how every bucket was checked
      costs.json         every measured mode of every bucket, not only the winners, and the memory that they take
      saved_model/       one set of variables, one signature for each compiled graph

A compiled graph's signature takes the model's inputs by name, each ``[rows, *padded shape]``, then the length
inputs ``[rows]``, and gives the outputs by name, each ``[rows, *shape]``, and the signature's ``length_outputs``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from server.signature import ModelSignature

__all__ = ["FORMAT_VERSION", "PREDICT", "Bucket", "CompiledGraph", "DerivativeEntry", "ExecutionMode", "Manifest"]

FORMAT_VERSION = 1
#: The entry point that every model has. Derivatives are further entry points.
PREDICT = "predict"
#: A compiled graph's size: its rows, then its padded length on each axis.
Bucket: TypeAlias = tuple[int, ...]

MANIFEST_FILE = "model.json"
CERTIFICATE_FILE = "certificate.json"
COSTS_FILE = "costs.json"
SAVED_MODEL_DIR = "saved_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionMode:
    """How a compiled graph is run.

    ``compiler`` is ``graph`` or ``xla``; ``executor`` is ``single_threaded`` or ``default`` (TensorFlow's
    session executors); ``intra_op_threads`` is the size of the session's kernel thread pool. ``control_flow`` is
    ``masked`` (loops and branches compute on all rows) or ``partitioned`` (on the rows in them).
    """

    compiler: str
    executor: str
    intra_op_threads: int
    control_flow: str = "masked"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraph:
    """One bucket of one entry point.

    ``rows`` is its batch size; ``lengths`` the padded size of each length axis, in the signature's order;
    ``signature`` its key in the SavedModel; ``cost_s`` the median time of one call, in seconds, in ``mode``.
    """

    rows: int
    lengths: tuple[int, ...]
    signature: str
    mode: ExecutionMode
    cost_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivativeEntry:
    """A further entry point: the ``kind`` of derivative, of which output, by what, and its own signature.

    The signature's outputs are named after what is differentiated by (pairs, ``x,y``, of a Hessian by several).
    """

    kind: str
    output: str
    wrt: tuple[str, ...]
    signature: ModelSignature


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What ``model.json`` says. ``entries`` maps entry points to their compiled graphs.

    ``bitwise_groups`` are, by entry point, buckets of one padded length that answer every probe with the same bits in
    the form that serves them, whatever the slot and the neighbours: whoever is served from one such group can't tell by
    which bucket. A bucket that isn't steady is in none. ``invariant``: the registration asked for invariant mode.
    ``derivatives`` describes each of them but PREDICT, whose signature is ``signature``.
    """

    name: str
    version: int
    signature: ModelSignature
    entries: Mapping[str, tuple[CompiledGraph, ...]]
    tensorflow_version: str
    built_at: str
    bitwise_groups: Mapping[str, tuple[tuple[Bucket, ...], ...]] = field(default_factory=dict)
    invariant: bool = False
    derivatives: Mapping[str, DerivativeEntry] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def signature_of(self, entry: str) -> ModelSignature:
        """Return what an entry point takes and gives."""
        return self.signature if entry == PREDICT else self.derivatives[entry].signature

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "format_version": self.format_version,
            "name": self.name,
            "version": self.version,
            "tensorflow_version": self.tensorflow_version,
            "built_at": self.built_at,
            "signature": self.signature.to_json(),
            "entries": {name: [asdict(graph) for graph in graphs] for name, graphs in self.entries.items()},
            "bitwise_groups": dict(self.bitwise_groups),
            "invariant": self.invariant,
            "derivatives": {
                name: {**asdict(entry), "signature": entry.signature.to_json()}
                for name, entry in self.derivatives.items()
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Manifest:
        """Build from ``to_json``'s result. Errors: ValueError if the format is of another version or damaged."""
        try:
            if value["format_version"] != FORMAT_VERSION:
                raise ValueError(
                    f"artifact format {value['format_version']} is not {FORMAT_VERSION}: register the model again"
                )
            return cls(
                name=value["name"],
                version=int(value["version"]),
                signature=ModelSignature.from_json(value["signature"]),
                entries={
                    name: tuple(
                        CompiledGraph(
                            rows=int(graph["rows"]),
                            lengths=tuple(graph["lengths"]),
                            signature=graph["signature"],
                            mode=ExecutionMode(**graph["mode"]),
                            cost_s=float(graph["cost_s"]),
                        )
                        for graph in graphs
                    )
                    for name, graphs in value["entries"].items()
                },
                bitwise_groups={
                    name: tuple(tuple(tuple(map(int, bucket)) for bucket in group) for group in groups)
                    # Before artifacts knew of invariant mode, unsteady buckets were among them.
                    for name, groups in (value["bitwise_groups"] if "invariant" in value else {}).items()
                },
                invariant=bool(value.get("invariant", False)),
                tensorflow_version=value["tensorflow_version"],
                built_at=value["built_at"],
                derivatives={
                    name: DerivativeEntry(
                        kind=entry["kind"],
                        output=entry["output"],
                        wrt=tuple(entry["wrt"]),
                        signature=ModelSignature.from_json(entry["signature"]),
                    )
                    # Artifacts of before there were any do not say so.
                    for name, entry in value.get("derivatives", {}).items()
                },
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{MANIFEST_FILE} is damaged: {error!r}") from error

    def write(self, artifact: Path) -> None:
        """Write ``model.json`` into the artifact's directory (the store fsyncs it)."""
        (artifact / MANIFEST_FILE).write_text(json.dumps(self.to_json(), indent=1) + "\n")

    @classmethod
    def read(cls, artifact: Path) -> Manifest:
        """Read ``model.json``. Errors: OSError; ValueError if damaged."""
        return cls.from_json(json.loads((artifact / MANIFEST_FILE).read_text()))
