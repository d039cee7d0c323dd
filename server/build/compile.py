"""A declared function -> an artifact: vectorized, checked, measured, written.

The order matters. The SavedModel is written with every compiled form of every bucket, each is timed in a session as
the engine will run it, the final SavedModel with the winners alone is written, and each of them is checked once more
in exactly the file, form and session that will serve. One that answers otherwise there loses its place to the next.
"""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from server.artifact import (
    CERTIFICATE_FILE,
    COSTS_FILE,
    PREDICT,
    SAVED_MODEL_DIR,
    CompiledGraph,
    Manifest,
)
from server.build.declaration import Declaration
from server.build.footprint import Footprint, variables_bytes
from server.build.forms import Form, forms_of, save_forms
from server.build.measure import Measurement, measure, pick
from server.build.served_check import check_served
from server.signature import LengthAxis, ModelSignature, TensorSignature
from vectorizer import Axis, Bucket, Vectorized, vectorize
from vectorizer.probe_batches import fits, stack_probes
from vectorizer.probes import ProbeKind

__all__ = ["Report", "build_artifact"]

#: Called as ``report(stage, done, total)`` with the stages of ``server.build.request``.
Report = Callable[[str, int, int], None]

#: With ``buckets: "auto"``, a larger bucket stays only if its rows cost at least this much less each.
_PAYS = 0.98


def build_artifact(declaration: Declaration, output: Path, *, name: str, version: int, report: Report) -> Manifest:
    """Build an artifact into the empty directory ``output`` and return its manifest.

    Errors: the vectorizer's errors; BuildFailed if a bucket runs in no execution mode.
    """
    spec = declaration.spec
    source = declaration.source
    vectorized = vectorize(
        declaration.function,
        inputs=declaration.inputs,
        buckets=declaration.buckets,
        lengths=declaration.lengths,
        allow_looped=spec.allow_looped,
        tolerance=spec.tolerance,
        random=spec.random,
        examples=declaration.examples,
        partitioned=True,
        progress=report,
        name=source.name if source is not None else None,
        lines=source.lines if source is not None else None,
    )
    signature = model_signature(vectorized)
    forms = forms_of(vectorized)
    scratch = output / "candidates"
    report("measure", 0, 1)
    save_forms(vectorized, declaration, forms, scratch)
    measurements = measure(
        scratch,
        list(forms),
        feeds=lambda bucket: _feeds(vectorized, bucket),
        outputs=[*(entry.name for entry in signature.outputs), *signature.length_outputs],
        progress=lambda done, total: report("measure", done, total),
    )
    report("write", 0, 2)
    final = output / SAVED_MODEL_DIR
    while True:
        chosen = pick(measurements)
        if spec.buckets == "auto":
            chosen = _paying(chosen)
        winners = {Form.of(bucket, entry.candidate.mode) for bucket, entry in chosen.items()}
        if scratch.exists() and winners == forms.keys():
            scratch.rename(final)
        else:
            shutil.rmtree(scratch, ignore_errors=True)
            save_forms(vectorized, declaration, {form: forms[form] for form in forms if form in winners}, final)
        footprint = Footprint()
        checked = check_served(
            vectorized,
            final,
            {bucket: entry.candidate.mode for bucket, entry in chosen.items()},
            tolerance=spec.tolerance,
            footprint=footprint,
        )
        if not checked.unfaithful:
            break
        for bucket, reason in checked.unfaithful.items():
            chosen[bucket].error = reason
        shutil.rmtree(final)
    report("write", 1, 2)
    bitwise_groups = checked.bits.groups()
    manifest = Manifest(
        name=name,
        version=version,
        signature=signature,
        entries={PREDICT: tuple(_compiled_graph(bucket, entry) for bucket, entry in sorted(chosen.items()))},
        bitwise_groups={PREDICT: bitwise_groups},
        tensorflow_version=tf.__version__,
        built_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    memory = {"variables_bytes": variables_bytes(vectorized), "resident_bytes": footprint.resident_bytes}
    # What is served is what counts: XLA rounds otherwise than the graph that it was made from.
    certificate = replace(
        vectorized.certificate,
        parity=tuple(checked.parity[bucket] for bucket in sorted(chosen)),
        bitwise_groups=bitwise_groups,
    )
    (output / CERTIFICATE_FILE).write_text(certificate.to_json() + "\n")
    (output / COSTS_FILE).write_text(json.dumps({**_costs(measurements, chosen), "memory": memory}, indent=1) + "\n")
    manifest.write(output)
    report("write", 2, 2)
    return manifest


def model_signature(vectorized: Vectorized) -> ModelSignature:
    """Return the signature that callers see: without the length inputs, which the server fills in."""
    told = {axis.length_input for axis in vectorized.axes}
    axis_of = {dim: axis.name for axis in vectorized.axes for dim in axis.dims}
    inputs = vectorized.function.inputs
    return ModelSignature(
        inputs=tuple(
            TensorSignature(
                name=name,
                dtype=spec.dtype.name,
                shape=tuple(
                    axis_of[name, dim] if size is None else size for dim, size in enumerate(spec.shape.as_list())
                ),
                is_optional=name == vectorized.function.seed_input,
            )
            for name, spec in inputs.items()
            if name not in told
        ),
        outputs=tuple(
            TensorSignature(
                name=output.name,
                dtype=output.dtype.name,
                shape=tuple(
                    output.length_names[index] if dim is None else dim if isinstance(dim, int) else dim.name
                    for index, dim in enumerate(output.dims)
                ),
            )
            for output in vectorized.outputs
        ),
        axes=tuple(_length_axis(axis, inputs) for axis in vectorized.axes),
    )


def _length_axis(axis: Axis, inputs: Mapping[str, tf.TensorSpec]) -> LengthAxis:
    dtype = inputs[axis.length_input].dtype.name if axis.length_input else "int32"
    return LengthAxis(
        name=axis.name, max=axis.max, buckets=axis.buckets, length_input=axis.length_input, length_dtype=dtype
    )


def _feeds(vectorized: Vectorized, bucket: Bucket) -> dict[str, np.ndarray]:
    """Return a full batch of probes that a busy server would run in the bucket: those that no shorter one holds."""
    fitting = [probe for probe in vectorized.probes if probe.kind is not ProbeKind.EXTREME and fits(probe, bucket)] or [
        probe for probe in vectorized.probes if fits(probe, bucket)
    ]
    own = [
        probe
        for probe in fitting
        if all(
            length > max((size for size in axis.buckets if size < padded), default=-1)
            for axis, length, padded in zip(vectorized.axes, probe.lengths, bucket.lengths, strict=True)
        )
    ]
    rows = [(own or fitting)[slot % len(own or fitting)] for slot in range(bucket.rows)]
    return stack_probes(vectorized.function.inputs, vectorized.axes, bucket, rows)


def _paying(chosen: Mapping[Bucket, Measurement]) -> dict[Bucket, Measurement]:
    """Drop the largest batch sizes as long as they cost as much for each row as the size below them."""
    kept = dict(chosen)
    sizes = sorted({bucket.rows for bucket in kept})

    def per_row(rows: int) -> float:
        return sum(entry.cost_s for bucket, entry in kept.items() if bucket.rows == rows) / rows

    while len(sizes) > 1 and per_row(sizes[-1]) > per_row(sizes[-2]) * _PAYS:
        dropped = sizes.pop()
        kept = {bucket: entry for bucket, entry in kept.items() if bucket.rows != dropped}
    return kept


def _compiled_graph(bucket: Bucket, entry: Measurement) -> CompiledGraph:
    mode = entry.candidate.mode
    return CompiledGraph(
        rows=bucket.rows,
        lengths=bucket.lengths,
        signature=Form.of(bucket, mode).signature,
        mode=mode,
        cost_s=entry.cost_s,
    )


def _costs(measurements: Sequence[Measurement], chosen: Mapping[Bucket, Measurement]) -> dict[str, Any]:
    winners = {id(entry) for entry in chosen.values()}
    return {
        "format_version": 1,
        "entries": {PREDICT: [{**entry.to_json(), "chosen": id(entry) in winners} for entry in measurements]},
    }
