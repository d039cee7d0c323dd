"""What a worker knows of the models: those that serve, as the engine last said.

That is enough to answer predictions of them. Whoever asks for anything else, for a model that is not among them too, is
passed on to the engine, which knows what to say: so nothing that a worker knows can be out of date in a way that shows.
"""

from __future__ import annotations

from server.artifact import PREDICT, DerivativeEntry
from server.batching import Draining
from server.derivatives import ServedDerivative
from server.link.messages import Served, Table
from server.link.remote_model import Link, RemoteModel
from server.store.errors import ModelNotFound, ModelNotReady
from server.store.records import State, VersionRecord

__all__ = ["RemoteCatalog"]


class RemoteCatalog:
    """The models of the newest table."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._served: dict[str, tuple[Served, RemoteModel]] = {}
        self._is_draining = False

    def begin_drain(self) -> None:
        """Admit no prediction any more."""
        self._is_draining = True

    def take(self, table: Table) -> None:
        """Go by a table from now on. A model that was in the last one stays the same object: codecs are kept by it."""
        before, self._served = self._served, {}
        for served in table.served:
            known = before.get(served.model)
            same = known is not None and known[1].number == served.entries[0].number
            model = known[1] if known is not None and same else self._model(served)
            self._served[served.model] = served, model

    def clear(self) -> None:
        """Know of no model: the engine is gone."""
        self._served = {}

    def serves(self, model: str, *, version: str | None, label: str | None) -> bool:
        """Return whether a prediction of this model is for this worker to answer."""
        found = self._served.get(model)
        if found is None:
            return False
        if version is not None:
            return version == str(found[0].version)
        return label is None or label in found[0].labels

    def resolve(self, name: str, version: int | None = None) -> RemoteModel:
        """Return who answers. Errors: Draining; ModelNotReady for one that has left between ``serves`` and now."""
        if self._is_draining:
            raise Draining
        found = self._served.get(name)
        if found is None or version not in (None, found[0].version):
            raise ModelNotReady(name, version, "it has just been switched; try again")
        return found[1]

    def versions(self, name: str) -> list[VersionRecord]:
        """Return the version that serves, with the labels that lead to it. Errors: ModelNotFound."""
        found = self._served.get(name)
        if found is None:
            raise ModelNotFound(name)
        labels = dict.fromkeys(found[0].labels, "")
        return [VersionRecord(model=name, version=found[0].version, state=State.AVAILABLE, active=True, labels=labels)]

    def _model(self, served: Served) -> RemoteModel:
        handles = {entry.entry: RemoteModel(self._link, served, entry) for entry in served.entries}
        model = handles[PREDICT]
        model.derivatives = tuple(
            ServedDerivative(
                described=DerivativeEntry(
                    kind=entry.derivative.kind,
                    output=entry.derivative.output,
                    wrt=entry.derivative.wrt,
                    signature=entry.signature,
                ),
                model=handles[entry.entry],
            )
            for entry in served.entries
            if entry.derivative is not None
        )
        return model
