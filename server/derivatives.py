"""The derivatives that a loaded version answers, each with queues and plans of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from server.artifact import DerivativeEntry
from server.protocol import Rows
from server.signature import ModelSignature

if TYPE_CHECKING:
    from server.web.interfaces import EntryPoint, Ticket

__all__ = ["Narrowed", "ServedDerivative"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDerivative:
    """One entry point besides the prediction: what it is of and by, and who answers it."""

    described: DerivativeEntry
    model: EntryPoint
    #: By what was asked for. A signature must stay the same object, as codecs are kept by it.
    _narrowed: dict[tuple[str, ...], Narrowed] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of derivative."""
        return self.described.kind

    @property
    def output(self) -> str:
        """The output that is differentiated."""
        return self.described.output

    @property
    def wrt(self) -> tuple[str, ...]:
        """The inputs and variables that it is by."""
        return self.described.wrt

    def by(self, wrt: tuple[str, ...]) -> EntryPoint:
        """Return who answers with the results by ``wrt`` alone, in the declared order. All of them are declared."""
        if set(wrt) == set(self.wrt):
            return self.model
        declared = tuple(name for name in self.wrt if name in wrt)
        if declared not in self._narrowed:
            # Those of a Hessian by several are called after two of them.
            kept = [f"{a},{b}" for a in declared for b in declared] if self.kind == "hessian" else list(declared)
            self._narrowed[declared] = Narrowed(self.model, kept)
        return self._narrowed[declared]


class Narrowed:
    """A served model of which only some outputs are asked for."""

    __slots__ = ("_indexes", "_model", "signature")

    def __init__(self, model: EntryPoint, outputs: list[str]) -> None:
        self._model = model
        self._indexes = [index for index, tensor in enumerate(model.signature.outputs) if tensor.name in outputs]
        self.signature: ModelSignature = replace(
            model.signature, outputs=tuple(model.signature.outputs[index] for index in self._indexes)
        )

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def version(self) -> int:
        """Its version."""
        return self._model.version

    @property
    def entry(self) -> str:
        """Its entry point."""
        return self._model.entry

    def predict(
        self,
        rows: Rows,
        *,
        timeout_s: float | None,
        on_done: Callable[[Any], None],
        spent_s: float = 0.0,
        caller: str | None = None,
        priority: int | None = None,
    ) -> Ticket:
        """Queue a request's rows, as the model does."""

        def narrowed(answer: Any) -> None:
            if answer.error is None:
                answer.outputs = [answer.outputs[index] for index in self._indexes]
            on_done(answer)

        return self._model.predict(
            rows, timeout_s=timeout_s, on_done=narrowed, spent_s=spent_s, caller=caller, priority=priority
        )
