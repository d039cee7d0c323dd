"""One entry point of an artifact under way: its graphs in every form, what each costs, and which are to serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from server.artifact import PREDICT, CompiledGraph, DerivativeEntry
from server.batching.costs import TURN_S
from server.build.forms import Form, forms_of
from server.build.invariant_forms import AgreeingForms, invariant_costs
from server.build.measure import Measurement, pick
from server.build.served_check import ServedCheck
from server.signature import LengthAxis, ModelSignature, TensorSignature
from vectorizer import Axis, Bucket, Certificate, Vectorized
from vectorizer.probe_batches import fits, stack_probes
from vectorizer.probes import ProbeKind

__all__ = ["EntryPoint", "entry_points", "model_signature", "paying"]

#: With ``buckets: "auto"``, a larger bucket stays only if its rows cost at least this much less each, with what a batch
#: costs beside its graph.
_PAYS = 0.98


class EntryPoint:
    """The function itself (PREDICT) or one of its derivatives."""

    def __init__(self, name: str, vectorized: Vectorized, *, keeps_all_buckets: bool) -> None:
        self.name = name
        self.vectorized = vectorized
        self.signature = model_signature(vectorized)
        self.forms: dict[Form, Any] = forms_of(vectorized, entry=name)
        self._keeps_all_buckets = keeps_all_buckets
        #: Of every form in every mode; filled by the builder.
        self.measurements: Sequence[Measurement] = ()
        #: What may serve in invariant mode; None: the fastest serve.
        self.agreeing: AgreeingForms | None = None
        #: The fastest measurement of each bucket that pays, and that which serves, of each that does.
        self.fastest: dict[Bucket, Measurement] = {}
        self.chosen: dict[Bucket, Measurement] = {}

    def choose(self) -> set[Form]:
        """Choose each bucket's fastest form and mode of those without an error; return the forms.

        Errors: BuildFailed if a bucket runs in no mode, or none can serve in invariant mode where that is asked for.
        """
        fastest = pick(self.measurements)
        self.fastest = self.chosen = fastest if self._keeps_all_buckets else paying(fastest)
        if self.agreeing is not None:
            self.chosen = self.agreeing.choose(self.fastest)
        return {Form.of(bucket, entry.candidate.mode, entry=self.name) for bucket, entry in self.chosen.items()}

    def feeds(self, bucket: Bucket) -> dict[str, np.ndarray]:
        """Return a full batch of probes that a busy server would run in the bucket: those that no shorter one holds."""
        vectorized = self.vectorized
        fitting = [probe for probe in vectorized.probes if fits(probe, bucket)]
        fitting = [probe for probe in fitting if probe.kind is not ProbeKind.EXTREME] or fitting
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

    def certificate(self, checked: ServedCheck) -> Certificate:
        """Return the certificate of what is served: XLA rounds otherwise than the graph that it was made from."""
        return replace(
            self.vectorized.certificate,
            parity=tuple(checked.parity[bucket] for bucket in sorted(self.chosen)),
            bitwise_groups=checked.bits.groups(),
        )

    def compiled_graphs(self) -> tuple[CompiledGraph, ...]:
        """Return what the manifest says of the chosen graphs."""
        return tuple(
            CompiledGraph(
                rows=bucket.rows,
                lengths=bucket.lengths,
                signature=entry.candidate.form.signature,
                mode=entry.candidate.mode,
                cost_s=entry.cost_s,
            )
            for bucket, entry in sorted(self.chosen.items())
        )

    def invariant_costs(self, checked: ServedCheck) -> list[dict[str, Any]]:
        """Return what invariant mode serves from at each padded length, and what it costs, as plain JSON types."""
        return invariant_costs(self.compiled_graphs(), checked.bits.steady_groups(), free=self.fastest)

    def costs(self) -> list[dict[str, Any]]:
        """Return every measurement, and whether it was chosen, as plain JSON types."""
        winners = {id(entry) for entry in self.chosen.values()}
        return [{**entry.to_json(), "chosen": id(entry) in winners} for entry in self.measurements]

    def derivative_entry(self) -> DerivativeEntry:
        """Return what the manifest says of a derivative."""
        declared = self.vectorized.derivative
        return DerivativeEntry(
            kind=declared.kind, output=declared.output, wrt=tuple(declared.wrt), signature=self.signature
        )


def entry_points(vectorized: Vectorized, *, keeps_all_buckets: bool) -> list[EntryPoint]:
    """Return the function's entry point, then those of its derivatives."""
    return [
        EntryPoint(name, entry, keeps_all_buckets=keeps_all_buckets)
        for name, entry in {PREDICT: vectorized, **vectorized.derivatives}.items()
    ]


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


def paying(chosen: Mapping[Bucket, Measurement]) -> dict[Bucket, Measurement]:
    """Drop the largest batch sizes as long as they cost as much for each row as the size below them."""
    kept = dict(chosen)
    sizes = sorted({bucket.rows for bucket in kept})

    def per_row(rows: int) -> float:
        return sum(entry.cost_s + TURN_S for bucket, entry in kept.items() if bucket.rows == rows) / rows

    while len(sizes) > 1 and per_row(sizes[-1]) > per_row(sizes[-2]) * _PAYS:
        dropped = sizes.pop()
        kept = {bucket: entry for bucket, entry in kept.items() if bucket.rows != dropped}
    return kept
