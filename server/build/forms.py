"""The forms in which a bucket can be compiled: a graph or XLA, loops and branches masked or partitioned.

Forms in one SavedModel share the variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from server.artifact import PREDICT, ExecutionMode
from server.build.declaration import Declaration
from vectorizer import Bucket, Vectorized
from vectorizer.for_xla import for_xla
from vectorizer.resources import resources_of

__all__ = ["Form", "forms_of", "has_tables", "save_forms"]

MASKED = "masked"
PARTITIONED = "partitioned"


class Form(NamedTuple):
    """One compiled form of one bucket; how it is executed is another question."""

    bucket: Bucket
    compiler: str
    control_flow: str = MASKED
    entry: str = PREDICT

    @classmethod
    def of(cls, bucket: Bucket, mode: ExecutionMode, *, entry: str = PREDICT) -> Form:
        """Return the form that is run in a mode."""
        return cls(bucket, mode.compiler, mode.control_flow, entry)

    @property
    def signature(self) -> str:
        """The form's key in the SavedModel."""
        size = "x".join(map(str, (self.bucket.rows, *self.bucket.lengths)))
        return "_".join(
            (self.entry, size, self.compiler, *([] if self.control_flow == MASKED else [self.control_flow]))
        )


def forms_of(vectorized: Vectorized, *, entry: str = PREDICT) -> dict[Form, Any]:
    """Return the graph of every form of every bucket: as it is, and as a function that XLA must compile."""
    forms: dict[Form, Any] = {}
    # Strings live outside of XLA's types altogether; asserts and random kernels it drops, or does otherwise.
    values = [*vectorized.function.inputs.values(), *vectorized.outputs]
    with_xla = (
        vectorized.is_for_xla
        and not vectorized.certificate.not_for_xla
        and all(value.dtype != tf.string for value in values)
    )
    for control_flow, graphs in ((MASKED, vectorized.graphs), (PARTITIONED, vectorized.partitioned)):
        for bucket, graph in graphs.items():
            forms[Form(bucket, "graph", control_flow, entry)] = graph
            if with_xla:
                forms[Form(bucket, "xla", control_flow, entry)] = for_xla(graph)
    return forms


def save_forms(vectorized: Vectorized, declaration: Declaration, forms: Mapping[Form, Any], path: Path) -> None:
    """Write a SavedModel with a signature for each form, and the function's variables and tables once."""
    root = tf.Module()
    root.variables_of_the_function = list(vectorized.function.variables)
    if has_tables(vectorized):
        # The loaded model's, or found where an imported function refers to them.
        root.owner = declaration.owner or resources_of(declaration.function)
    tf.saved_model.save(root, str(path), signatures={form.signature: graph for form, graph in forms.items()})


def has_tables(vectorized: Vectorized) -> bool:
    """Return whether the function looks something up, in tables and their files."""
    resources = [t for t in vectorized.function.concrete.captured_inputs if t.dtype == tf.resource]
    return len(resources) > len(vectorized.function.variables)
