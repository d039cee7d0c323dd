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
from dataclasses import dataclass, replace
from functools import partial
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
    stacked,
    stock_registry,
    wrap,
    wrap_list,
)
from vectorizer.checks import checks_in
from vectorizer.converters.costly import is_costly
from vectorizer.converters.differing.outcomes import Outcome, outcome_of
from vectorizer.converters.lists import Content, as_list, captured, lent, listed
from vectorizer.converters.masks import masked, of_rows
from vectorizer.converters.partitions import branch_sizes, first_rows
from vectorizer.converters.raising import can_raise
from vectorizer.converters.rows import borrowed, elements_where, rows_put, rows_where

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
    inputs = [_unmasked(listed(value)) for value in pfor_input.inputs[1:]]
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
    forms = _forms(pfor_input, outcome, made)
    if choice.is_stacked:
        results: list[tf.Tensor] | None = None
        for number, branch in enumerate(branches):
            takes = _takes(choice.t, number)
            new = _run_branch(pfor_input, branch, inputs, takes, outcome, forms, conversions[number])
            results = (
                new
                if results is None
                else [form.chosen(takes, *pair) for form, *pair in zip(forms, new, results, strict=True)]
            )
        assert results is not None, "a choice has branches"
        return outcome.together(
            [form.wrapped(result, is_stacked=True) for form, result in zip(forms, results, strict=True)]
        )

    def run(branch: Any) -> list[tf.Tensor]:
        converted = outcome.apart(convert_body(pfor_input, branch, inputs), pfor_input)
        flat = [form.flat(value, is_stacked=form.is_stacked) for form, value in zip(forms, converted, strict=True)]
        return flat or [tf.constant(0)]

    taken = tf.switch_case(choice.t, [lambda branch=branch: run(branch) for branch in branches])
    return outcome.together(
        [
            form.wrapped(output, is_stacked=form.is_stacked)
            for form, output in zip(forms, _listed(taken, forms or (None,)), strict=bool(forms))
        ]
    )


def _takes(choice: tf.Tensor, number: int) -> tf.Tensor:
    """Return which rows take a branch: a predicate is a mask as it is."""
    if choice.dtype == tf.bool:
        return choice if number else ~choice
    return tf.equal(choice, number)


@dataclass(frozen=True, slots=True)
class _Form:
    """What the branches make of one output: a tensor, or a list of known elements for each row."""

    pfor_input: Any
    rows: int
    is_stacked: bool
    content: Content | None

    def flat(self, value: Any, *, is_stacked: bool) -> tf.Tensor:
        """Return a branch's result as a tensor."""
        if self.content is None:
            return stacked(value, self.pfor_input) if is_stacked else value.t
        content = as_list(value)
        assert content is not None, "it was one when it was tried"
        return content.of_rows(self.rows, self.content.element).dense

    def wrapped(self, tensor: tf.Tensor, *, is_stacked: bool) -> Any:
        """Return the choice as a converter's result."""
        return wrap(tensor, stacked=is_stacked) if self.content is None else wrap_list(self.content.with_dense(tensor))

    def chosen(self, mask: tf.Tensor, yes: tf.Tensor, no: tf.Tensor) -> tf.Tensor:
        """Return each row's own result."""
        return rows_where(mask, yes, no) if self.content is None else elements_where(mask, yes, no)

    def nothing(self, output: Any) -> tf.Tensor:
        """Return what stands for the result of a branch that no row takes."""
        if self.content is None:
            return tf.zeros([self.rows, *output.shape.as_list()], output.dtype)
        assert self.content.element is not None, "a form has elements"
        return tf.zeros([self.content.n, self.rows, *self.content.element], self.content.dtype)


def _forms(pfor_input: Any, outcome: Outcome, made: Sequence[Sequence[Any]]) -> list[_Form]:
    padded = _Form(pfor_input, rows_of(pfor_input), True, None)
    return [padded if index is None else _form(pfor_input, [tried[index] for tried in made]) for index in outcome.plain]


def _form(pfor_input: Any, made: Sequence[Any]) -> _Form:
    rows = rows_of(pfor_input)
    if made[0].t.dtype != tf.variant:
        return _Form(pfor_input, rows, any(value.is_stacked for value in made), None)
    contents = [as_list(value) for value in made]
    known = [content for content in contents if content is not None]
    elements = {content.element for content in known if content.element is not None}
    if len(known) < len(made) or len({content.n for content in known}) > 1 or len(elements) != 1:
        raise NotImplementedError(
            "branches leave a TensorArray with different lengths or elements: give it its largest size and its "
            "element_shape, tf.TensorArray(dtype, size=n, element_shape=shape)"
        )
    return _Form(pfor_input, rows, True, Content(known[0].n, known[0].dtype, elements.pop()))


def _unmasked(value: Any) -> Any:
    """Return a list as one that belongs to no loop: what a branch makes of it is chosen from as a whole."""
    content = list_content(value)
    return value if content is None else wrap_list(replace(content, origin=None, is_bounded=False))


def _run_branch(
    pfor_input: Any,
    branch: Any,
    inputs: Sequence[Any],
    takes: tf.Tensor,
    outcome: Outcome,
    forms: Sequence[_Form],
    conversions: Sequence[Any],
) -> list[tf.Tensor]:
    """Run one branch for the rows that take it; the results of others mean nothing."""
    may_fail = can_raise(conversions, in_branch=True)

    is_costly_branch = is_costly(conversions)

    def run() -> list[tf.Tensor]:
        given = inputs
        if may_fail:
            lender = borrowed(takes)
            given = [lent(value, lender) for value in inputs]
        with masked(takes):
            made = outcome.apart(convert_body(pfor_input, branch, given), pfor_input)
            return [form.flat(value, is_stacked=True) for form, value in zip(forms, made, strict=True)]

    if len(conversions) <= _CHEAP_OPS and not is_costly_branch and not may_fail:
        return run()

    def skip() -> list[tf.Tensor]:
        return [form.nothing(spec) for form, spec in zip(forms, outcome.specs, strict=True)]

    def run_few(n: int) -> list[tf.Tensor]:
        places = first_rows(takes, n)
        few = at_rows(pfor_input, n)
        taken = tf.gather(takes, places)
        if may_fail:
            places = tf.gather(places, borrowed(taken))
            taken = tf.gather(takes, places)
        with of_rows(places), masked(taken):
            made = outcome.apart(convert_body(few, branch, [lent(value, places) for value in inputs]), few)
            rows = [
                replace(form, pfor_input=few, rows=n).flat(value, is_stacked=True)
                for form, value in zip(forms, made, strict=True)
            ]
        return [
            rows_put(nothing, places, value, 0 if form.content is None else 1)
            for form, nothing, value in zip(forms, skip(), rows, strict=True)
        ]

    n_taking = tf.reduce_sum(tf.cast(takes, tf.int32))
    made = run
    for n in branch_sizes(rows_of(pfor_input)) if is_costly_branch else ():
        made = _either(n_taking <= n, partial(run_few, n), made, forms)
    return _either(n_taking > 0, made, skip, forms)()


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
        made = convert_body(pfor_input, branch, [captured(value, graph) for value in inputs])
    return made, conversions


def _listed(outputs: Any, like: Sequence[Any]) -> list[tf.Tensor]:
    """Undo that TensorFlow gives a single output bare."""
    return [outputs] if len(like) == 1 and isinstance(outputs, tf.Tensor) else list(outputs)


CONVERTERS: dict[str, Converter] = {"Case": _case, "If": _if, "StatelessCase": _case, "StatelessIf": _if}
