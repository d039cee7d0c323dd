"""A SavedModel by its MetaGraph: the signature's ops, with variables and tables of our own.

Theory of operation. ``tf.saved_model.load`` rebuilds the Python objects that were saved, and fails where their classes
have changed: old Keras saved its optimizers' slots. A signature needs none of them. So the MetaGraph is loaded into a
session, which restores variables and fills tables as it always did; their values are taken out into variables and
tables that belong to us (and that can be saved again); and calling the signature makes its ops again around those, for
the shapes of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from vectorizer._pfor import SavedModelProto, graph_by_name
from vectorizer.errors import DeclarationError
from vectorizer.retrace import Retracing, needed_ops
from vectorizer.source import SourceLines

__all__ = ["MetaGraphSignature", "has_objects", "load_signature"]

_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_TABLES = frozenset({"HashTableV2", "MutableHashTableV2"})


@dataclass(frozen=True, kw_only=True, eq=False)
class MetaGraphSignature:
    """A signature as a function: takes its ``inputs`` by name and returns a dict of its ``outputs``.

    ``owner`` holds the variables and tables.
    """

    name: str
    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    owner: tf.Module
    graph: Any
    #: The names of its tensors in ``graph``, by input and by output.
    input_tensors: Mapping[str, str]
    output_tensors: Mapping[str, str]
    #: The value that takes the place of an op, by the op's name: made anew in each graph.
    stand_ins: Mapping[str, Callable[[], tf.Tensor]]
    #: Of the ops that were made, by their names in the file.
    lines: SourceLines

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def __call__(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make the signature's ops in the current graph. Errors: TraceError for TensorFlow 1's control flow."""
        if tf.executing_eagerly():
            answer: dict[str, tf.Tensor] = tf.function(self, autograph=False)(**inputs)
            return answer
        current = tf.compat.v1.get_default_graph()
        for variable in self.owner.variables:
            current.watch_variable(variable)
        some_op = next(iter(self.graph.get_operations()))
        bodies: dict[str, Any] = {}

        def find_graph(_op: Any, name: str) -> Any:
            if name not in bodies:
                bodies[name] = graph_by_name(some_op, name)
            return bodies[name]

        def stand_in(op: Any) -> list[tf.Tensor] | None:
            made = self.stand_ins.get(op.name) if op.graph is self.graph else None
            return None if made is None else [current.capture(made())]

        given = {self.input_tensors[name]: value for name, value in inputs.items()}
        outputs = [self.graph.get_tensor_by_name(self.output_tensors[name]) for name in self.outputs]
        retracing = Retracing(find_graph=find_graph, stand_in=stand_in, lines=self.lines)
        return dict(zip(self.outputs, retracing.run(self.graph, given, outputs), strict=True))


def has_objects(saved_model: Path) -> bool:
    """Return whether a SavedModel holds Python objects to restore: TensorFlow 1 wrote none. Errors: OSError."""
    return any(graph.HasField("object_graph_def") for graph in _proto(saved_model).meta_graphs)


def load_signature(saved_model: Path, key: str) -> MetaGraphSignature:
    """Load the signature ``key`` of a SavedModel directory by its MetaGraph.

    Errors: DeclarationError if it has no such signature, or one of no plain tensors; OSError; what TensorFlow raises
        for a file that its session can't load.
    """
    trainable = {
        node.variable.name: node.variable.trainable
        for meta_graph in _proto(saved_model).meta_graphs
        for node in meta_graph.object_graph_def.nodes
        if node.WhichOneof("kind") == "variable"
    }
    graph = tf.Graph()
    with tf.compat.v1.Session(graph=graph) as session:
        meta_graph = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], str(saved_model))
        definition = _signature(meta_graph, key)
        ends = [graph.get_tensor_by_name(info.name) for info in definition.outputs.values()]
        starts = {info.name for info in definition.inputs.values()}
        needed = sorted(needed_ops([end.op for end in ends], starts))
        stateful = [op for op in map(graph.get_operation_by_name, needed) if op.type in _VARIABLES | _TABLES]
        contents = _contents(session, stateful)
    # Outside of the session's graph, which they would be part of.
    owner = tf.Module()
    owner.variables_of_the_graph, owner.tables = [], []
    stand_ins: dict[str, Callable[[], tf.Tensor]] = {}
    for op, content in zip(stateful, contents, strict=True):
        if op.type in _TABLES:
            owner.tables.append(_table(op, *content))
            stand_ins[op.name] = _table_handle(owner.tables[-1])
        else:
            variable = _variable(op, content, trainable)
            owner.variables_of_the_graph.append(variable)
            stand_ins[op.name] = _handle(variable) if op.type == "VarHandleOp" else variable.read_value
    return MetaGraphSignature(
        name=key,
        inputs=_specs(definition.inputs),
        outputs=_specs(definition.outputs),
        owner=owner,
        graph=graph,
        input_tensors={name: info.name for name, info in definition.inputs.items()},
        output_tensors={name: info.name for name, info in definition.outputs.items()},
        stand_ins=stand_ins,
        lines=SourceLines(),
    )


def _proto(saved_model: Path) -> Any:
    proto = SavedModelProto()
    proto.ParseFromString((saved_model / "saved_model.pb").read_bytes())
    return proto


def _signature(meta_graph: Any, key: str) -> Any:
    served = {
        name: each for name, each in meta_graph.signature_def.items() if each.outputs and not name.startswith("__")
    }
    if key not in served:
        raise DeclarationError(f"the SavedModel has no signature {key!r}; it has {', '.join(sorted(served)) or 'none'}")
    for side in (served[key].inputs, served[key].outputs):
        for name, info in side.items():
            if info.WhichOneof("encoding") != "name" or info.tensor_shape.unknown_rank:
                raise DeclarationError(
                    f"signature {key!r}: {name!r} is no dense tensor with a known number of dimensions"
                )
    return served[key]


def _specs(infos: Any) -> dict[str, tf.TensorSpec]:
    return {
        name: tf.TensorSpec(
            [None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim], tf.as_dtype(info.dtype), name=name
        )
        for name, info in sorted(infos.items())
    }


def _contents(session: Any, stateful: Sequence[Any]) -> list[Any]:
    """Return each variable's value, each table's keys and values. Errors: DeclarationError if one was not restored."""
    with session.graph.as_default():
        contents = [_content(op) for op in stateful]
    try:
        values: list[Any] = session.run(contents)
    except tf.errors.FailedPreconditionError as error:
        raise DeclarationError(
            f"the SavedModel's MetaGraph does not restore what it reads, so that no session can serve it: {error}"
        ) from error
    return values


def _content(op: Any) -> Any:
    if op.type == "VarHandleOp":
        return tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype"))
    if op.type in _TABLES:
        return tf.raw_ops.LookupTableExportV2(
            table_handle=op.outputs[0], Tkeys=op.get_attr("key_dtype"), Tvalues=op.get_attr("value_dtype")
        )
    return op.outputs[0]


def _variable(op: Any, value: Any, trainable: Mapping[str, bool]) -> tf.Variable:
    name = (op.get_attr("shared_name").decode() if op.type == "VarHandleOp" else "") or op.name
    return tf.Variable(value, dtype=op.get_attr("dtype"), trainable=trainable.get(name, True), name=name)


def _table(op: Any, keys: Any, values: Any) -> Any:
    key_dtype, value_dtype = op.get_attr("key_dtype"), op.get_attr("value_dtype")
    content = tf.lookup.KeyValueTensorInitializer(keys, values, key_dtype=key_dtype, value_dtype=value_dtype)
    # What is not found is an input of each look-up; the table's own default is not asked for.
    return tf.lookup.StaticHashTable(content, default_value=b"" if value_dtype == tf.string else 0)


def _handle(variable: tf.Variable) -> Callable[[], tf.Tensor]:
    return lambda: variable.handle


def _table_handle(table: Any) -> Callable[[], tf.Tensor]:
    return lambda: table.resource_handle
