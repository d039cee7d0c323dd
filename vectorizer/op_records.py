"""The certificate's account of the ops: grouped by type and treatment, in the order of the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vectorizer.certificate import MadeBy, OpClass, OpRecord
from vectorizer.conversions import CALLING_OPS, ConversionLog, OpKey, op_key
from vectorizer.converters.raising import raising_ops
from vectorizer.effects import walk_ops
from vectorizer.fixes import fix_for
from vectorizer.trace import ExampleFunction

__all__ = ["MOST_PLACES", "OpAccount", "refused_records"]

#: Ops that compute nothing.
_NO_WORK = ("Placeholder", "NoOp")
#: Places that a record or a message names.
MOST_PLACES = 5


@dataclass(frozen=True, slots=True)
class _Treated:
    """What the conversions of all buckets did with one op."""

    op: Any
    reason: str | None = None
    raises: bool = False


@dataclass
class OpAccount:
    """What happened to each op, over all buckets: an op that is looped in one of them is looped."""

    #: Op types whose converters are ours, and those whose converters the caller gave.
    own: Collection[str] = ()
    given: Collection[str] = ()
    _treated: dict[OpKey, _Treated] = field(default_factory=dict)
    #: The ops of a batch as the model takes it itself; then nothing else counts.
    _own_batch: list[Any] = field(default_factory=list)

    def add(self, log: ConversionLog, looped: Mapping[OpKey, tuple[Any, str]]) -> None:
        """Add one bucket's conversion, and the ops that are looped in it with the reason."""
        raising = {op_key(op) for op in raising_ops(log.conversions)}
        for key, op in log.converted().items():
            known = self._treated.setdefault(key, _Treated(op))
            if key in raising and not known.raises:
                self._treated[key] = replace(known, raises=True)
        for key, (op, reason) in looped.items():
            self._treated[key] = replace(self._treated.get(key, _Treated(op)), reason=reason)

    def add_own_batch(self, graph: Any) -> None:
        """Take the graph of a bucket that runs as the model takes a batch itself: nothing of it was converted."""
        self._own_batch = [op for op in walk_ops(graph) if op.type not in _NO_WORK]

    def records(self, function: ExampleFunction) -> tuple[OpRecord, ...]:
        """Return the records of all ops of the function."""
        groups = _Groups(function)
        for op in self._own_batch:
            groups.add(op, OpRecord(op=op.type, kind=OpClass.OWN_BATCH, count=0, where=()))
        if self._own_batch:
            return tuple(groups.records())
        for treated in _distinct(function, self._treated.values()):
            if not treated.reason and treated.op.name in function.seeded and treated.op.type.startswith("Stateless"):
                groups.add(treated.op, _seeded(function, treated.op))
                continue
            kind = OpClass.LOOPED if treated.reason else OpClass.VECTORIZED
            groups.add(
                treated.op,
                OpRecord(
                    op=treated.op.type,
                    kind=kind,
                    count=0,
                    where=(),
                    reason=treated.reason,
                    fix=fix_for(treated.op.type) if treated.reason else None,
                    converter=self._made_by(treated.op.type),
                    can_raise=treated.raises,
                ),
            )
        converted = {(each.op.type, each.op.name, function.where(each.op)) for each in self._treated.values()}
        for op in walk_ops(function.graph):
            if op.type in _NO_WORK or op_key(op) in self._treated:
                continue
            if (op.type, op.name, function.where(op)) not in converted:
                groups.add(op, OpRecord(op=op.type, kind=OpClass.INVARIANT, count=0, where=()))
        return tuple(groups.records())

    def _made_by(self, op_type: str) -> MadeBy:
        if op_type in self.given:
            return MadeBy.CALLER
        return MadeBy.ROWWISE if op_type in self.own or op_type in CALLING_OPS else MadeBy.PFOR


def _seeded(function: ExampleFunction, op: Any) -> OpRecord:
    """Return the record of an op that stands for one of the user's with a hidden state."""
    return OpRecord(
        op=function.seeded[op.name],
        kind=OpClass.SEEDED,
        count=0,
        where=(),
        reason=f"drawn from the seed of each row by {op.type}",
        converter=MadeBy.ROWWISE,
    )


class _Groups:
    """Ops that were treated alike, counted, with their places."""

    def __init__(self, function: ExampleFunction) -> None:
        self._function = function
        self._counts: Counter[OpRecord] = Counter()
        self._places: dict[OpRecord, dict[str, None]] = {}

    def add(self, op: Any, record: OpRecord) -> None:
        """Count ``op`` to the group that ``record`` describes."""
        self._counts[record] += 1
        self._places.setdefault(record, {})[self._function.where(op)] = None

    def records(self) -> Iterator[OpRecord]:
        """Yield the groups in the order of their first op."""
        for record, count in self._counts.items():
            yield replace(record, count=count, where=tuple(list(self._places[record])[:MOST_PLACES]))


def refused_records(function: ExampleFunction, looped: Sequence[tuple[Any, str]]) -> tuple[OpRecord, ...]:
    """Return the records of ops that are refused because they would run once for each row, with the reasons."""
    groups = _Groups(function)
    for op, reason in looped:
        groups.add(
            op,
            OpRecord(op=op.type, kind=OpClass.REFUSED, count=0, where=(), reason=reason, fix=fix_for(op.type)),
        )
    return tuple(groups.records())


def _distinct(function: ExampleFunction, treated: Collection[_Treated]) -> Iterator[_Treated]:
    """Yield each op once, though it is in the body of every length: the treatment that says most of it."""
    best: dict[tuple[str, str, str], _Treated] = {}
    for each in treated:
        signature = (each.op.type, each.op.name, function.where(each.op))
        known = best.get(signature, each)
        best[signature] = replace(known, reason=known.reason or each.reason, raises=known.raises or each.raises)
    yield from best.values()
