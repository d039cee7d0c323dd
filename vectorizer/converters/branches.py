"""``if`` and ``switch`` of one example -> every branch that some row takes, then each row its own result.

pfor cuts the rows of each branch out of the batch and stitches the results together: shapes become dynamic, and
XLA refuses. Here a branch runs on the whole batch:

1. A branch that is cheap and can't fail just runs.
2. Another one runs only if some row takes it. If it can fail, the rows that don't take it borrow the inputs of one
   that does.
3. A costly one may run on those rows alone, cut out of the batch, if few take it (``partitions.py``).
4. Each row gets the result of its branch.

A predicate that is the same for all rows stays a real branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    Converter,
    at_rows,
    called_graph,
    called_graphs,
    convert_body,
    graph_by_name,
    list_content,
    nothing_but_checks,
    rows_of,
    scratch_graph,
    stock_registry,
    wrap,
    wrap_list,
)
from vectorizer.checks import checks_in
from vectorizer.converters.contents import Content, Stack
from vectorizer.converters.costly import is_costly
from vectorizer.converters.differing.outcomes import Outcome, outcome_of
from vectorizer.converters.forms import Form, Leaf, TensorForm
from vectorizer.converters.known import captured, known_value, lent
from vectorizer.converters.masks import masked, of_rows
from vectorizer.converters.partitions import branch_sizes, first_rows
from vectorizer.converters.raising import can_raise
from vectorizer.converters.rows import borrowed, rows_put, slots_of, where_at
from vectorizer.converters.value_forms import OptionalForm, cut, flat, form_of

__all__ = ["CONVERTERS"]

#: A branch of more ops than this, or any that are costly, is worth the 10 us that a real branch costs.
_CHEAP_OPS = 24


def _if(pfor_input: Any) -> Any:
    op = pfor_input.op
    branches = [called_graph(op, "else_branch"), called_graph(op, "then_branch")]
    predicate = pfor_input.input(0)
    taken = predicate.t if predicate.t.dtype == tf.bool else tf.not_equal(predicate.t, 0)
    choice = wrap(taken if predicate.is_stacked else tf.cast(taken, tf.int32), stacked=predicate.is_stacked)
    return _converted(pfor_input, choice, branches, stock="If")


def _case(pfor_input: Any) -> Any:
    op = pfor_input.op
    branches = [graph_by_name(op, branch.name) for branch in op.get_attr("branches")]
    index = pfor_input.input(0)
    last = len(branches) - 1
    # Out of range means the last one, the default.
    is_valid = tf.logical_and(index.t >= 0, index.t <= last)
    choice = wrap(tf.where(is_valid, index.t, last), stacked=index.is_stacked)
    return _converted(pfor_input, choice, branches, stock="Case")


def _converted(pfor_input: Any, choice: Any, branches: Sequence[Any], *, stock: str) -> Any:
    first = tf.compat.v1.get_default_graph().num_operations()
    made = _choose(pfor_input, choice, branches)
    if made is None:
        if checks_in([pfor_input.op], called_graphs):
            raise NotImplementedError("its results have no fixed shape, so that an assert in it would be lost")
        return stock_registry()[stock](pfor_input)
    return made or nothing_but_checks(first)


def _choose(pfor_input: Any, choice: Any, branches: Sequence[Any]) -> list[Any] | None:
    """Convert a choice between branches; None if their results can't be chosen between row by row."""
    inputs = [_unmasked(known_value(value)) for value in pfor_input.inputs[1:]]
    outputs = [output for branch in branches for output in branch.outputs]
    if any(output.dtype == tf.resource or output.shape.rank is None for output in outputs):
        return None
    made = []
    conversions = []
    for branch in branches:
        tried, converted = _tried(pfor_input, branch, inputs)
        made.append(tried)
        conversions.append(converted)
    outcome = outcome_of(pfor_input.outputs, made)
    if outcome is None:
        return None
    tried_forms = [_forms(outcome, tried) for tried in made]
    forms = [reduce(_joined, of_output) for of_output in zip(*tried_forms, strict=True)]
    if any(isinstance(form, TensorForm) and not form.is_fixed for form in forms):
        return None
    rows = rows_of(pfor_input)
    if choice.is_stacked:
        forms = [form.stacked() for form in forms]
        results: list[tf.Tensor] | None = None
        for number, branch in enumerate(branches):
            takes = _takes(choice.t, number)
            new = _run_branch(pfor_input, branch, inputs, takes, outcome, forms, conversions[number])
            if results is None:
                results = new
                continue
            has_value = [
                leaf
                for form, tried in zip(forms, tried_forms[number], strict=True)
                for leaf in _chosen_leaves(form, tried, rows)
            ]
            results = [
                no if leaf is None else where_at(takes, yes, no, axis=leaf.axis or 0)
                for leaf, yes, no in zip(has_value, new, results, strict=True)
            ]
        assert results is not None, "a choice has branches"
        return outcome.together(_built(forms, results, rows))

    def run(branch: Any) -> list[tf.Tensor]:
        flat = _flat(forms, outcome.apart(convert_body(pfor_input, branch, inputs), pfor_input), rows)
        return flat or [tf.constant(0)]

    taken = tf.switch_case(choice.t, [lambda branch=branch: run(branch) for branch in branches])
    return outcome.together(_built(forms, _listed(taken, _leaves(forms, rows) or (None,)), rows))


def _takes(choice: tf.Tensor, number: int) -> tf.Tensor:
    """Return which rows take a branch: a predicate is a mask as it is."""
    if choice.dtype == tf.bool:
        return choice if number else ~choice
    return tf.equal(choice, number)


def _forms(outcome: Outcome, tried: Sequence[Any]) -> list[Form]:
    """Return the forms of what a branch makes, and of the parts of what differs in length."""
    return [
        TensorForm(spec.dtype, tuple(spec.shape), is_stacked=True) if index is None else form_of(tried[index])
        for index, spec in zip(outcome.plain, outcome.specs, strict=True)
    ]


def _joined(one: Form, other: Form) -> Form:
    try:
        return one.joined(other)
    except NotImplementedError as error:
        raise NotImplementedError(f"branches leave different things: {error}") from error


def _chosen_leaves(form: Form, tried: Form, rows: int) -> list[Leaf | None]:
    """Return the leaves of an output, None where a branch leaves nothing that could be chosen."""
    leaves = form.leaves(rows)
    return [None] * len(leaves) if isinstance(tried, OptionalForm) and tried.parts is None else list(leaves)


def _leaves(forms: Sequence[Form], rows: int) -> list[Leaf]:
    return [leaf for form in forms for leaf in form.leaves(rows)]


def _flat(forms: Sequence[Form], values: Sequence[Any], rows: int) -> list[tf.Tensor]:
    return [leaf for form, value in zip(forms, values, strict=True) for leaf in flat(known_value(value), form, rows)]


def _built(forms: Sequence[Form], leaves: Sequence[tf.Tensor], rows: int) -> list[Any]:
    left = list(leaves)
    built = []
    for form in forms:
        n = len(form.leaves(rows))
        built.append(form.built(left[:n]))
        left = left[n:]
    return built


def _unmasked(value: Any) -> Any:
    """Return a list as one that belongs to no loop: what a branch makes of it is chosen from as a whole."""
    content = list_content(value)
    if isinstance(content, Content):
        return wrap_list(replace(content, origin=None, is_bounded=False))
    return wrap_list(replace(content, origin=None)) if isinstance(content, Stack) else value


def _run_branch(
    pfor_input: Any,
    branch: Any,
    inputs: Sequence[Any],
    takes: tf.Tensor,
    outcome: Outcome,
    forms: Sequence[Form],
    conversions: Sequence[Any],
) -> list[tf.Tensor]:
    """Run one branch for the rows that take it; the results of others mean nothing."""
    may_fail = can_raise(conversions, in_branch=True)
    is_costly_branch = is_costly(conversions)
    rows = rows_of(pfor_input)
    leaves = _leaves(forms, rows)

    def run() -> list[tf.Tensor]:
        given = inputs
        if may_fail:
            lender = borrowed(takes)
            given = [lent(value, lender) for value in inputs]
        with masked(takes):
            return _flat(forms, outcome.apart(convert_body(pfor_input, branch, given), pfor_input), rows)

    if len(conversions) <= _CHEAP_OPS and not is_costly_branch and not may_fail:
        return run()

    def skip() -> list[tf.Tensor]:
        return [leaf.blank() for leaf in leaves]

    def run_few(n: int) -> list[tf.Tensor]:
        places = first_rows(takes, n)
        taken = tf.gather(takes, places)
        if may_fail:
            places = tf.gather(places, borrowed(taken))
            taken = tf.gather(takes, places)
        with of_rows(places), masked(taken):
            smaller = at_rows(pfor_input, n)
            made = convert_body(smaller, branch, [cut(value, places, rows) for value in inputs])
            few = _flat(forms, outcome.apart(made, smaller), n)
        slots = slots_of(places, rows)
        return [
            rows_put(nothing, slots, value, leaf.axis) for leaf, nothing, value in zip(leaves, skip(), few, strict=True)
        ]

    n_taking = tf.reduce_sum(tf.cast(takes, tf.int32))
    made = run
    has_one_size = all(None not in leaf.shape for leaf in leaves)
    for n in branch_sizes(rows) if is_costly_branch and has_one_size else ():
        made = _either(n_taking <= n, partial(run_few, n), made, leaves)
    return _either(n_taking > 0, made, skip, leaves)()


def _either(
    test: tf.Tensor, yes: Callable[[], list[tf.Tensor]], no: Callable[[], list[tf.Tensor]], like: Sequence[Any]
) -> Callable[[], list[tf.Tensor]]:
    def some(branch: Callable[[], list[tf.Tensor]]) -> Callable[[], list[tf.Tensor]]:
        return lambda: branch() or [tf.constant(0)]  # a branch that only checks

    return lambda: _listed(tf.cond(test, some(yes), some(no)), like or (None,))[: len(like)]


def _tried(pfor_input: Any, branch: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Convert a branch for a look: what it makes, and what was converted."""
    conversions: list[Any] = []
    with scratch_graph(conversions) as graph:
        inside = [captured(value, graph) for value in inputs]
        made = [known_value(value) for value in convert_body(pfor_input, branch, inside)]
    return made, conversions


def _listed(outputs: Any, like: Sequence[Any]) -> list[tf.Tensor]:
    """Undo that TensorFlow gives a single output bare."""
    return [outputs] if len(like) == 1 and isinstance(outputs, tf.Tensor) else list(outputs)


CONVERTERS: dict[str, Converter] = {"Case": _case, "If": _if, "StatelessCase": _case, "StatelessIf": _if}
