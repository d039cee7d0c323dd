"""A graph that was traced before, traced again: the same ops, for shapes that are known now.

Theory of operation. A restored function was traced by somebody else, for whatever they declared: a batch of any size,
a sequence of any length. Called with an example, its ops still do not know their shapes, and what decides by shape (a
masked loop, XLA, most converters) has nothing to decide by. So its graph is walked, and each op is made once more in
the graph that is being built, where TensorFlow infers its shape anew:

1. A call is inlined: the body's ops are made again for the arguments' shapes.
2. A loop, a branch or a choice is made again by its public function, with bodies that are traced again. A loop's
   variable that its body hands on unchanged becomes a captured tensor.
3. Ops that are needed by an output, or must run for their effect, are made; others are left out.

Graphs of TensorFlow 1's control flow (Enter, Switch, ...) have no bodies and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

from vectorizer._pfor import called_graph, copied_op, graph_by_name, is_stateful
from vectorizer.errors import TraceError
from vectorizer.list_shapes import ListShapes
from vectorizer.shape_values import known_value
from vectorizer.source import SourceLines, source_line

__all__ = ["Retracing", "knows_fewer_shapes", "needed_ops", "with_known_shapes"]

#: TensorFlow 1's form of loops and branches.
_OLD_CONTROL_FLOW = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "RefEnter", "RefExit", "Switch"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

#: Finds the graph of the function of that name, which an op calls.
FindGraph = Callable[[Any, str], Any]
#: Gives an op's outputs where they are not to be made by the op itself (a variable's handle), else None.
StandIn = Callable[[Any], Sequence[tf.Tensor] | None]
#: Gives the outputs of an op, of new inputs, where they are to be computed in another way, else None.
OwnForm = Callable[[Any, Sequence[tf.Tensor]], Sequence[tf.Tensor] | None]


class Retracing:
    """Makes the ops of one graph and of the functions that it calls again.

    ``lines`` gets the places of the new ops; ``known`` has those of the old ones, if the graph itself doesn't.
    """

    def __init__(
        self,
        *,
        lines: SourceLines,
        known: SourceLines | None = None,
        find_graph: FindGraph = graph_by_name,
        stand_in: StandIn | None = None,
        own_form: OwnForm | None = None,
    ) -> None:
        self._lines = lines
        self._known = known
        self._find_graph = find_graph
        self._stand_in = stand_in or (lambda op: None)
        self._own_form = own_form or (lambda op, inputs: None)
        self._lists = ListShapes()

    def run(self, graph: Any, given: Mapping[str, tf.Tensor], outputs: Sequence[Any]) -> list[tf.Tensor]:
        """Make what ``outputs`` need in the current graph, with ``given`` tensors, by name, in place of its own.

        Errors: TraceError for TensorFlow 1's control flow, or an input that is not given.
        """
        values = dict(given)
        made: dict[str, list[Any]] = {}
        effects = _effects(graph)
        needed = needed_ops([*(output.op for output in outputs), *effects], given)
        for op in graph.get_operations():
            if op.name not in needed:
                continue
            with ExitStack() as controlled:
                controls = [new for control in op.control_inputs for new in made.get(control.name, ())]
                if controls:
                    controlled.enter_context(tf.control_dependencies(controls))
                results = self._made(op, [values[each.name] for each in op.inputs], made)
            for old, new in zip(op.outputs, results, strict=True):
                if old.shape.rank is not None and new.shape.is_compatible_with(old.shape):
                    new.set_shape(old.shape)  # what was said of it by hand is not inferred
                values[old.name] = new
        return [values[output.name] for output in outputs]

    def _made(self, op: Any, inputs: list[tf.Tensor], made: dict[str, list[Any]]) -> Sequence[tf.Tensor]:
        """Make one op again; ``made`` gets what others may have to wait for."""
        given = self._stand_in(op) or self._own_form(op, inputs)
        if given is not None:
            return given
        if op.type in _OLD_CONTROL_FLOW:
            raise TraceError(
                f"op {op.type} (node {op.name!r}) belongs to TensorFlow 1's control flow, which can't be vectorized: "
                "export the model again with tf.compat.v1.enable_control_flow_v2(), or from TensorFlow 2"
            )
        if op.type == "Placeholder":
            raise TraceError(f"node {op.name!r} is an input that the signature does not name: export it with a default")
        if op.type in _FUNCTIONAL:
            results = _FUNCTIONAL[op.type](self, op, inputs)
            # What is stateful in there waits for itself; what waits for the call waits for its results.
            made[op.name] = [result.op for result in results]
            return results
        if op.type == "Assert" and tf.get_static_value(inputs[0]) is not None and tf.get_static_value(inputs[0]):
            return []  # it is about shapes, and holds
        value = known_value(op, inputs)
        if value is not None:
            return [value]
        new = copied_op(op, inputs)
        self._lists.made(op.type, inputs, new.outputs)
        made[op.name] = [new]
        self._lines.add(new, source_line(op, self._known))
        return list(new.outputs)

    def _call(self, graph: Any, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        given = {inner.name: outer for inner, outer in zip(graph.inputs, arguments, strict=True)}
        return self.run(graph, given, graph.outputs)

    def _graph(self, op: Any, attribute: str) -> Any:
        return self._find_graph(op, op.get_attr(attribute).name)

    def inlined(self, op: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Make a call's ops in place."""
        return self._call(self._graph(op, "f"), inputs)

    def branch(self, op: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Make an ``if``."""
        predicate, *arguments = inputs
        yes, no = self._graph(op, "then_branch"), self._graph(op, "else_branch")
        known = tf.get_static_value(predicate)
        if known is not None:
            return self._call(yes if known else no, arguments)
        if predicate.dtype != tf.bool:
            predicate = tf.not_equal(predicate, 0)
        return _flat(tf.cond(predicate, lambda: self._call(yes, arguments), lambda: self._call(no, arguments)))

    def choice(self, op: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Make a ``switch_case``."""
        index, *arguments = inputs
        branches = [self._find_graph(op, branch.name) for branch in op.get_attr("branches")]
        calls = [lambda branch=branch: self._call(branch, arguments) for branch in branches]
        return _flat(tf.switch_case(index, calls))

    def loop(self, op: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Make a ``while``."""
        condition, body = self._graph(op, "cond"), self._graph(op, "body")
        carried = [
            index for index, pair in enumerate(zip(body.inputs, body.outputs, strict=True)) if not _hands_on(*pair)
        ]

        def state(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            known = dict(zip(carried, values, strict=True))
            return [known.get(index, value) for index, value in enumerate(inputs)]

        def goes_on(*values: tf.Tensor) -> tf.Tensor:
            result = self._call(condition, state(values))[0]
            return result if result.dtype == tf.bool else tf.not_equal(result, 0)

        last: list[tf.Tensor] = []

        def step(*values: tf.Tensor) -> list[tf.Tensor]:
            for index, value in zip(carried, values, strict=True):
                self._lists.follow(inputs[index], value)
            results = self._call(body, state(values))
            last[:] = [results[index] for index in carried]
            return last

        def looped(shapes: Sequence[tf.TensorShape]) -> list[tf.Tensor]:
            return _flat(
                tf.while_loop(
                    goes_on,
                    step,
                    [inputs[index] for index in carried],
                    shape_invariants=list(shapes),
                    parallel_iterations=op.get_attr("parallel_iterations"),
                )
            )

        try:
            results = looped([inputs[index].shape for index in carried])
        except ValueError:  # a variable changes its shape, as the loop was declared to
            results = looped([body.inputs[index].shape for index in carried])
        for before, after in zip(last, results, strict=True):
            self._lists.follow(before, after)
        return state(results)


_FUNCTIONAL: dict[str, Callable[[Retracing, Any, list[tf.Tensor]], list[tf.Tensor]]] = {
    "Case": Retracing.choice,
    "If": Retracing.branch,
    "PartitionedCall": Retracing.inlined,
    "StatefulPartitionedCall": Retracing.inlined,
    "StatelessCase": Retracing.choice,
    "StatelessIf": Retracing.branch,
    "StatelessWhile": Retracing.loop,
    "While": Retracing.loop,
}


def with_known_shapes(concrete: Any, known: SourceLines | None) -> tuple[Any, SourceLines]:
    """Trace a ConcreteFunction again for the shapes of its own inputs, all the way down.

    Its inputs come positionally, as ``ExampleFunction.concrete`` takes them. Errors: those of ``Retracing.run``.
    """
    graph = concrete.graph
    n_arguments = len(graph.inputs) - len(concrete.captured_inputs)
    lines = SourceLines()
    retracing = Retracing(lines=lines, known=known)

    def again(*arguments: tf.Tensor) -> tuple[tf.Tensor, ...]:
        current = tf.compat.v1.get_default_graph()
        for variable in concrete.variables:
            current.watch_variable(variable)
        tensors = (*arguments, *map(current.capture, concrete.captured_inputs))
        given = {inner.name: outer for inner, outer in zip(graph.inputs, tensors, strict=True)}
        return tuple(retracing.run(graph, given, graph.outputs))

    specs = [tf.TensorSpec(each.shape, each.dtype) for each in graph.inputs[:n_arguments]]
    return tf.function(again, autograph=False).get_concrete_function(*specs), lines


def knows_fewer_shapes(graph: Any) -> bool:
    """Return True if a function that ``graph`` calls was traced for less specific shapes than it is called with."""
    for op in graph.get_operations():
        if op.type not in _CALLS:
            continue
        body = called_graph(op, "f")
        for outer, inner in zip(op.inputs, body.inputs, strict=True):
            if inner.dtype not in (tf.resource, tf.variant) and _n_known(outer.shape) > _n_known(inner.shape):
                return True
        if knows_fewer_shapes(body):
            return True
    return False


def _n_known(shape: tf.TensorShape) -> int:
    return -1 if shape.rank is None else sum(size is not None for size in shape)


def _effects(graph: Any) -> list[Any]:
    """Return the ops of a function's graph that run whether anything needs them or not."""
    return [op for op in getattr(graph, "control_outputs", ()) if op.type == "NoOp" or is_stateful(op)]


def needed_ops(ends: Iterable[Any], given: Container[str]) -> set[str]:
    """Return the names of the ops that ``ends`` need, up to the tensors whose names are ``given``."""
    needed: set[str] = set()
    waiting = list(ends)
    while waiting:
        op = waiting.pop()
        if op.name in needed or (op.outputs and all(output.name in given for output in op.outputs)):
            continue
        needed.add(op.name)
        waiting.extend(each.op for each in op.inputs if each.name not in given)
        waiting.extend(op.control_inputs)
    return needed


def _hands_on(given: Any, result: Any) -> bool:
    while result.op.type == "Identity":
        result = result.op.inputs[0]
    return bool(result is given or result.name == given.name)


def _flat(results: Any) -> list[tf.Tensor]:
    return [results] if isinstance(results, tf.Tensor) else list(results)
