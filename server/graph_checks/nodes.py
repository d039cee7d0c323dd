"""The walk over the nodes: every op of every body against the allow-list, with its attributes, device and sizes.

A model has tens of thousands of nodes, nearly all of them of a few types. So what is to be looked at is worked out once
for each type, and for most nodes comes to two comparisons.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from server.graph_checks._tensorflow import op_shape
from server.graph_checks.bodies import Body, Scan
from server.graph_checks.conditions import CONDITIONS, Condition
from server.graph_checks.constants import ConstantSizes
from server.graph_checks.devices import check_device
from server.graph_checks.errors import GraphDamaged, GraphTooLarge, OpRefused, UnknownOp, place, quoted
from server.graph_checks.limits import GraphLimits
from server.graph_checks.op_families import Family, Judgement, op_families

__all__ = ["Nodes"]

_CONSTANTS = ("Const", "HostConst")
_NEXT_STEP = "save the model with the TensorFlow that this server has"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be looked at in each node of one type. ``is_plain``: nothing but the names of its attributes.

    ``attributes`` are those that need no further look: the op's own, and what else was fine in another node.
    """

    family: Family
    attributes: set[str]
    functions: tuple[str, ...]
    texts: tuple[str, ...]
    held: tuple[str, ...]
    condition: Condition | None
    is_constant: bool
    is_plain: bool


class Nodes:
    """Checks nodes of one meta graph: ``producer`` is the version of what wrote it, ``functions`` is its library."""

    def __init__(
        self, limits: GraphLimits, constants: ConstantSizes, *, producer: int, functions: Container[str]
    ) -> None:
        self._limits = limits
        self._constants = constants
        self._producer = producer
        self._functions = functions
        self._plans: dict[str, _Plan] = {}
        self._devices = {""}

    def scan(self, body: Body) -> Scan:
        """Walk one body. Errors: GraphRefused in all its kinds, naming op, node and function."""
        scan = Scan(body)
        plans, devices, functions = self._plans, self._devices, self._functions
        for node in body.nodes:
            op = node.op
            device = node.device
            if device not in devices:
                check_device(device, node.name, body.name)
                devices.add(device)
            if op in functions:  # as TensorFlow 1 wrote calls
                scan.calls.append((op, node))
                continue
            plan = plans.get(op)
            if plan is None:
                plan = plans[op] = self._plan(op, node, body)
            names = set(node.attr)
            if not names <= plan.attributes:
                self._check_names(names - plan.attributes, node, body)
                plan.attributes.update(names)
            if not plan.is_plain:
                self._look_into(node, plan, scan)
        return scan

    def _plan(self, op: str, node: Any, body: Body) -> _Plan:
        where = place(node.name, body.name)
        family, shape = op_families().get(op), op_shape(op)
        if family is None or shape is None:
            raise UnknownOp(
                f"op {quoted(op)} ({where}) is none that may be served: custom ops and ops of the runtime itself are "
                "refused; write it with TensorFlow's own ops"
            )
        if family.judgement is Judgement.REFUSED:
            raise OpRefused(f"op {op} ({where}) {family.reason}: {family.next_step}")
        if 0 < shape.deprecated_at <= self._producer:
            raise UnknownOp(
                f"op {op} ({where}) is not in graphs of version {shape.deprecated_at} and later, and this one is of "
                f"version {self._producer}; {_NEXT_STEP}"
            )
        held, condition = CONDITIONS.get(op, ((), None))
        texts = tuple(name for name in shape.texts if name not in held)
        is_constant = op in _CONSTANTS
        is_plain = (
            not (shape.functions or texts or condition or is_constant or family.writes)
            and family.judgement is Judgement.ALLOWED
        )
        return _Plan(
            family=family,
            attributes=set(shape.attributes),
            functions=shape.functions,
            texts=texts,
            held=held,
            condition=condition,
            is_constant=is_constant,
            is_plain=is_plain,
        )

    def _check_names(self, names: set[str], node: Any, body: Body) -> None:
        # Those with an underscore are notes that passes leave one another; TensorFlow takes any.
        unknown = sorted(name for name in names if not name.startswith("_"))
        if unknown:
            raise UnknownOp(
                f"op {node.op} ({place(node.name, body.name)}) has the attribute {quoted(unknown[0])}, which this "
                f"TensorFlow does not know: it is of another version; {_NEXT_STEP}"
            )

    def _look_into(self, node: Any, plan: _Plan, scan: Scan) -> None:
        body = scan.body
        if plan.is_constant:
            self._constants.add(node, body.name)
        for name in plan.functions:
            scan.calls.extend((function, node) for function in self._called(node, name, body))
        for name in plan.texts:
            self._check_text(node, name, body)
        for name in plan.held:
            if name in node.attr and node.attr[name].WhichOneof("value") in ("placeholder", "list"):
                raise GraphDamaged(f"op {node.op} ({place(node.name, body.name)}) leaves its {name} to its caller")
        if plan.condition is not None and (wrong := plan.condition(node)):
            raise OpRefused(f"op {node.op} ({place(node.name, body.name)}) {wrong}")
        if plan.family.judgement is Judgement.PLACED:
            scan.placed.append(node)
        if plan.family.writes:
            scan.writes.append(node)

    def _called(self, node: Any, attribute: str, body: Body) -> list[str]:
        where = place(node.name, body.name)
        if attribute not in node.attr:
            return []
        value = node.attr[attribute]
        kind = value.WhichOneof("value")
        if kind not in ("func", "list"):
            raise GraphDamaged(f"op {node.op} ({where}) says no function as its {attribute}")
        called = [value.func.name] if kind == "func" else [function.name for function in value.list.func]
        for name in called:
            if name not in self._functions:
                raise GraphDamaged(
                    f"op {node.op} ({where}) calls function {quoted(name)}, which the file does not have; save the "
                    "model again with tf.saved_model.save"
                )
        return called

    def _check_text(self, node: Any, name: str, body: Body) -> None:
        if name not in node.attr:
            return
        value = node.attr[name]
        n_bytes = len(value.s) if value.WhichOneof("value") == "s" else sum(map(len, value.list.s))
        if n_bytes > self._limits.max_string_bytes:
            raise GraphTooLarge(
                f"the {name} of op {node.op} ({place(node.name, body.name)}) has {n_bytes} bytes, over "
                f"max_string_bytes = {self._limits.max_string_bytes}"
            )
