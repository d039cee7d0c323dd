"""Random ops of one example -> the same draws from a seed that is an input.

``tf.random.normal`` in a function has a hidden state: a batch would draw once for all rows, and no answer could be
given twice. Here the traced function is replayed op by op into a new graph that takes a seed as well, and each random
op becomes TensorFlow's stateless kernel of the same distribution:

1. The seed is the 64-bit key of a counter-based generator (Philox). Every random op, at every place that it is called
   from, has a number, which is the upper half of its counter: no two of them share a stream.
2. In a loop, the key of a step is made of the key outside and the number of the step, so that every step draws anew.
3. Calls of functions are inlined, branches and loops are built again around their replayed bodies; all other ops are
   copied with their attributes.

The replayed function is the oracle of the batched graphs, where converters make the streams of all rows at once.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import called_graph, captured, copy_op, graph_by_name
from vectorizer.converters.trips import same
from vectorizer.effects import RANDOM_OPS, walk_ops
from vectorizer.source import SourceLines
from vectorizer.trace import ExampleFunction

__all__ = ["SEED_DTYPE", "has_random_ops", "seeded"]

SEED_DTYPE = tf.int64
_PHILOX = 1
#: How Keras names the variable of a SeedGenerator.
_KERAS_STATE = "seed_generator_state"
#: Steps are told from random ops by it where both are mixed with a key.
_STEPS = 1 << 32


def has_random_ops(function: ExampleFunction) -> bool:
    """Return True if the function draws from a hidden state."""
    return bool(_hidden_states(function)) or any(op.type in RANDOM_OPS for op in walk_ops(function.graph))


def _hidden_states(function: ExampleFunction) -> list[tf.Variable]:
    """Return the variables from which Keras layers make seeds, and which they step on at every call."""
    return [variable for variable in function.variables if variable.name.split(":")[0].endswith(_KERAS_STATE)]


def seeded(function: ExampleFunction, *, seed_input: str | None = None) -> ExampleFunction:
    """Return the function with its random ops drawing from one more input, an int64 scalar.

    It is called ``seed`` unless the function has such an input (then ``random_seed``, ``random_seed_2``, ...).
    """
    name = seed_input or _unused_name(function)
    replay = _Replay(function)

    def with_seed(*tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        graph = tf.compat.v1.get_default_graph()
        hidden = _hidden_states(function)
        for variable in function.variables:
            if not any(variable is state for state in hidden):
                graph.watch_variable(variable)
        *arguments, seed = tensors
        n_arguments = len(arguments)
        values = [
            *arguments,
            *(
                captured(inner, outer)
                for inner, outer in zip(
                    function.graph.inputs[n_arguments:], function.concrete.captured_inputs, strict=True
                )
            ),
        ]
        replay.hide(
            value
            for value, outer in zip(values[n_arguments:], function.concrete.captured_inputs, strict=True)
            if any(outer is state.handle for state in hidden)
        )
        key = tf.reshape(tf.bitcast(seed, tf.uint64), [1])
        return tuple(tf.identity(made) for made in replay.run(function.graph, values, key, ()))

    spec = tf.TensorSpec([], SEED_DTYPE, name=name)
    inputs = {**function.inputs, name: spec}
    concrete = tf.function(with_seed, autograph=False).get_concrete_function(*inputs.values())
    return replace(function, concrete=concrete, inputs=inputs, lines=replay.lines, seed_input=name, seeded=replay.drawn)


def _unused_name(function: ExampleFunction) -> str:
    names = ["seed", "random_seed", *(f"random_seed_{number}" for number in range(2, len(function.inputs) + 2))]
    return next(name for name in names if name not in function.inputs)


class _Replay:
    """Builds a traced function again, into the current graph."""

    def __init__(self, function: ExampleFunction) -> None:
        self._function = function
        self.lines = SourceLines()
        #: Names of the ops that draw -> the type of the op in the user's function.
        self.drawn: dict[str, str] = {}
        #: Number of each random op, by the ops that lead to it: the same however often a body is built.
        self._numbers: dict[tuple[str, ...], int] = {}
        #: The states of layers, as tensors of the graph that is built.
        self._hidden: list[tf.Tensor] = []

    def hide(self, states: Iterable[tf.Tensor]) -> None:
        """Take resources of the graph that is built for the states of layers."""
        self._hidden.extend(states)

    def run(self, graph: Any, inputs: Sequence[tf.Tensor], key: tf.Tensor, path: tuple[str, ...]) -> list[tf.Tensor]:
        """Return a graph's outputs for its inputs. Shapes: key uint64 [1]."""
        tensors = {inner.name: outer for inner, outer in zip(graph.inputs, inputs, strict=True)}
        made_ops: dict[str, tf.Operation] = {}
        for op in graph.get_operations():
            if op.outputs and op.outputs[0].name in tensors:
                continue
            before = [made_ops[control.name] for control in op.control_inputs if control.name in made_ops]
            with tf.control_dependencies(before):
                made = self._op(op, [tensors[given.name] for given in op.inputs], key, (*path, op.name))
            if isinstance(made, tf.Operation):
                made_ops[op.name] = made
                made = made.outputs
            elif made:
                made_ops[op.name] = tf.group(*made) if op.type not in _LISTED else made[0].op
            tensors.update(zip((output.name for output in op.outputs), made, strict=False))
        # What only runs, an assert, is kept by TensorFlow's automatic control dependencies.
        return [tensors[output.name] for output in graph.outputs]

    def _op(self, op: Any, inputs: list[tf.Tensor], key: tf.Tensor, path: tuple[str, ...]) -> Any:
        graph = tf.compat.v1.get_default_graph()
        first = graph.num_operations()
        made: Any
        if op.type in _CALLS:
            return self.run(called_graph(op, "f"), inputs, key, path)
        if op.type in _IFS:
            made = self._if(op, inputs, key, path)
        elif op.type in _CASES:
            made = self._case(op, inputs, key, path)
        elif op.type in _WHILES:
            made = self._while(op, inputs, key, path)
        elif op.inputs and any(inputs[0] is state for state in self._hidden):
            made = self._state(op, key, path)
        elif op.type in RANDOM_OPS:
            number = self._number(path)
            made = _DRAWS[op.type](op, inputs, key, number)
        else:
            made = copy_op(op, inputs)
        place = self._function.where(op)
        for new in graph.get_operations()[first:]:
            self.lines.add(new, place)
            if op.type in RANDOM_OPS and new.type.startswith("Stateless"):
                self.drawn[new.name] = op.type
        return made

    def _number(self, path: tuple[str, ...]) -> int:
        return self._numbers.setdefault(path, len(self._numbers))

    def _state(self, op: Any, key: tf.Tensor, path: tuple[str, ...]) -> Any:
        """Replay what happens to a layer's state: every read is another seed, and nothing is written."""
        if op.type != "ReadVariableOp":
            return tf.no_op()
        output = op.outputs[0]
        return [
            tf.raw_ops.StatelessRandomUniformFullIntV2(
                shape=output.shape, key=key, counter=_counter(self._number(path)), alg=_PHILOX, dtype=output.dtype
            )
        ]

    def _branch(self, graph: Any, inputs: Sequence[tf.Tensor], key: tf.Tensor, path: tuple[str, ...]) -> Any:
        return lambda: self.run(graph, inputs, key, path) or [tf.constant(0)]

    def _if(self, op: Any, inputs: list[tf.Tensor], key: tf.Tensor, path: tuple[str, ...]) -> list[tf.Tensor]:
        predicate = inputs[0] if inputs[0].dtype == tf.bool else tf.not_equal(inputs[0], 0)
        branches = [
            self._branch(called_graph(op, name), inputs[1:], key, (*path, name))
            for name in ("then_branch", "else_branch")
        ]
        return _as_list(tf.cond(predicate, *branches))

    def _case(self, op: Any, inputs: list[tf.Tensor], key: tf.Tensor, path: tuple[str, ...]) -> list[tf.Tensor]:
        branches = [
            self._branch(graph_by_name(op, branch.name), inputs[1:], key, (*path, str(number)))
            for number, branch in enumerate(op.get_attr("branches"))
        ]
        return _as_list(tf.switch_case(inputs[0], branches))

    def _while(self, op: Any, inputs: list[tf.Tensor], key: tf.Tensor, path: tuple[str, ...]) -> list[tf.Tensor]:
        condition, body = called_graph(op, "cond"), called_graph(op, "body")
        changing = [index for index in range(len(inputs)) if not same(body, index)]

        def whole(state: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            values = list(inputs)
            for index, value in zip(changing, state, strict=True):
                values[index] = value
            return values

        def of_step(step: tf.Tensor) -> tf.Tensor:
            mixed = tf.stack([tf.bitcast(key, SEED_DTYPE)[0], step + _STEPS])
            return tf.raw_ops.StatelessRandomGetKeyCounter(seed=mixed).key

        def goes_on(step: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
            return self.run(condition, whole(state), of_step(step), (*path, "cond"))[0]

        def advance(step: tf.Tensor, *state: tf.Tensor) -> list[tf.Tensor]:
            made = self.run(body, whole(state), of_step(step), (*path, "body"))
            return [step + 1, *(made[index] for index in changing)]

        start = [tf.constant(0, tf.int64), *(inputs[index] for index in changing)]
        shapes = [tf.TensorShape([]), *(op.outputs[index].shape for index in changing)]
        _, *final = tf.while_loop(goes_on, advance, start, shape_invariants=shapes)
        return whole(final)


def _as_list(outputs: Any) -> list[tf.Tensor]:
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_IFS = frozenset({"If", "StatelessIf"})
_CASES = frozenset({"Case", "StatelessCase"})
_WHILES = frozenset({"While", "StatelessWhile"})
_LISTED = _IFS | _CASES

#: Makes a random op's outputs of the op, its inputs, a key [1] and the op's number.
_Draw = Callable[[Any, list[tf.Tensor], tf.Tensor, int], list[tf.Tensor]]


def _counter(number: int) -> tf.Tensor:
    return tf.constant([0, number], tf.uint64)


def _seed_pair(key: tf.Tensor, number: int) -> tf.Tensor:
    """Return what kernels without key and counter take. Shapes: int64 [2]."""
    return tf.stack([tf.bitcast(key, SEED_DTYPE)[0], tf.constant(number, SEED_DTYPE)])


def _filling(kernel: Callable[..., tf.Tensor]) -> _Draw:
    def draw(op: Any, inputs: list[tf.Tensor], key: tf.Tensor, number: int) -> list[tf.Tensor]:
        dtype = op.outputs[0].dtype
        return [kernel(shape=inputs[0], key=key, counter=_counter(number), alg=_PHILOX, dtype=dtype)]

    return draw


def _uniform_int(_op: Any, inputs: list[tf.Tensor], key: tf.Tensor, number: int) -> list[tf.Tensor]:
    shape, low, high = inputs
    return [
        tf.raw_ops.StatelessRandomUniformIntV2(
            shape=shape, key=key, counter=_counter(number), alg=_PHILOX, minval=low, maxval=high
        )
    ]


def _shuffle(_op: Any, inputs: list[tf.Tensor], key: tf.Tensor, number: int) -> list[tf.Tensor]:
    """Order by random 64-bit numbers."""
    (value,) = inputs
    n = value.shape[0] if value.shape.rank and value.shape[0] is not None else tf.shape(value)[0]
    order = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.reshape(n, [1]), key=key, counter=_counter(number), alg=_PHILOX, dtype=tf.int64
    )
    return [tf.gather(value, tf.argsort(order))]


def _multinomial(op: Any, inputs: list[tf.Tensor], key: tf.Tensor, number: int) -> list[tf.Tensor]:
    logits, n_samples = inputs
    return [
        tf.raw_ops.StatelessMultinomial(
            logits=logits,
            num_samples=n_samples,
            seed=_seed_pair(key, number),
            output_dtype=op.outputs[0].dtype,
        )
    ]


def _whole_shape(inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the shape of as many draws as asked for, for each parameter."""
    shape, parameter = inputs
    return tf.concat([shape, tf.shape(parameter, out_type=shape.dtype)], axis=0)


def _gamma(_op: Any, inputs: list[tf.Tensor], key: tf.Tensor, number: int) -> list[tf.Tensor]:
    return [
        tf.raw_ops.StatelessRandomGammaV2(shape=_whole_shape(inputs), seed=_seed_pair(key, number), alpha=inputs[1])
    ]


def _poisson(op: Any, inputs: list[tf.Tensor], key: tf.Tensor, number: int) -> list[tf.Tensor]:
    return [
        tf.raw_ops.StatelessRandomPoisson(
            shape=_whole_shape(inputs), seed=_seed_pair(key, number), lam=inputs[1], dtype=op.outputs[0].dtype
        )
    ]


#: How each op of RANDOM_OPS draws from a key.
_DRAWS: dict[str, _Draw] = {
    "Multinomial": _multinomial,
    "RandomGamma": _gamma,
    "RandomPoissonV2": _poisson,
    "RandomShuffle": _shuffle,
    "RandomStandardNormal": _filling(tf.raw_ops.StatelessRandomNormalV2),
    "RandomUniform": _filling(tf.raw_ops.StatelessRandomUniformV2),
    "RandomUniformInt": _uniform_int,
    "TruncatedNormal": _filling(tf.raw_ops.StatelessTruncatedNormalV2),
}
