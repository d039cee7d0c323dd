"""What a store knows of its models, in memory: asked at any time, by any thread, without touching the disk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from server.store.activation import Activation, rollback_target
from server.store.contents import Contents
from server.store.errors import Conflict, InvalidLabel, ModelNotFound, Superseded, VersionNotFound
from server.store.layout import check_name
from server.store.records import State, VersionRecord

__all__ = ["MAX_LABELS", "ModelIndex", "StoreIndex", "check_label"]

#: Labels of one model: TensorFlow Serving's users have two or three.
MAX_LABELS = 64

_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def check_label(label: str) -> str:
    """Return a label if it can be a segment of a path. Errors: InvalidLabel."""
    if _LABEL.fullmatch(label) is None:
        raise InvalidLabel(label)
    return label


@dataclass(slots=True)
class ModelIndex:
    """What the store knows of one model. Only the store writes to it, after the disk has it."""

    #: By version number; ``active`` in the records is not kept, and ``labels`` are those of the registration.
    versions: dict[int, VersionRecord] = field(default_factory=dict)
    #: The version that answers: always a BUILT one of ``versions``, or None.
    active: int | None = None
    #: True: none answers because the model was unloaded, and none is to until it is loaded again.
    is_unloaded: bool = False
    #: The version that answered before that; None where it is not known, or not there any more.
    unloaded: int | None = None
    #: The highest number ever given out: at least that of every version here.
    last: int = 0
    #: Versions up to this one were deleted with the model: below every version here.
    deleted: int = 0
    #: What was activated, oldest first.
    history: list[Activation] = field(default_factory=list)
    #: Labels that were set: each leads to one of ``versions``, whatever labels registrations carry. Replaced whole.
    labels: Mapping[str, int] = field(default_factory=dict)
    #: Files of each version that is BUILT, as far as they were recorded.
    contents: dict[int, Contents] = field(default_factory=dict)

    def stamped(self, record: VersionRecord) -> VersionRecord:
        """Return a record as it is told: with whether it answers, and with the labels that were set.

        A label that was set is carried by the version that it leads to and by no other.
        """
        labels = dict(record.labels)
        if self.labels:
            labels = {label: value for label, value in labels.items() if label not in self.labels}
            labels |= {label: "" for label, version in self.labels.items() if version == record.version}
        return replace(record, active=self.active == record.version, labels=labels)

    def check_built(self, name: str, version: int) -> VersionRecord:
        """Return a version that is built. Errors: VersionNotFound; Conflict for any other state."""
        record = self.known(name, version)
        if record.state is not State.BUILT:
            raise Conflict(not_built(record))
        return record

    def check_building(self, name: str, version: int) -> VersionRecord:
        """Return a version that is being built. Errors: VersionNotFound; Conflict for any other state."""
        record = self.known(name, version)
        if record.state is not State.BUILDING:
            raise Conflict(f"version {version} of model {name!r} is {record.state}, not {State.BUILDING}")
        return record

    def check_deletable(self, name: str, version: int) -> None:
        """Errors: VersionNotFound; Conflict for the active version, and for what a label leads to that was set."""
        self.known(name, version)
        if self.active == version:
            raise Conflict(
                f"version {version} of model {name!r} is the active one: activate another version first, "
                "or delete the model"
            )
        held = sorted(label for label, number in self.labels.items() if number == version)
        if held:
            raise Conflict(
                f"the label {held[0]!r} leads to version {version} of model {name!r}: move or remove it first"
            )

    def check_newest(self, name: str, version: int) -> None:
        """Errors: Superseded where a newer version than this one answers."""
        if self.active is not None and self.active > version:
            raise Superseded(f"version {self.active} of model {name!r} is newer than version {version}, and answers")

    def labelled(self, label: str, version: int) -> dict[str, int]:
        """Return the labels with one that is set. Errors: InvalidLabel where they are too many."""
        labels = {**self.labels, check_label(label): version}
        if len(labels) > MAX_LABELS:
            raise InvalidLabel(label, limit=MAX_LABELS)
        return labels

    def without(self, version: int) -> None:
        """Forget a version."""
        self.versions = {number: record for number, record in self.versions.items() if number != version}
        self.contents.pop(version, None)
        if self.unloaded == version:
            self.unloaded = None

    def known(self, name: str, version: int) -> VersionRecord:
        """Return a version's record. Errors: VersionNotFound."""
        try:
            return self.versions[version]
        except KeyError:
            raise VersionNotFound(name, version) from None

    def digests(self, version: int) -> list[str]:
        """Return the SHA-256 of each file of a version, as far as they were recorded."""
        contents = self.contents.get(version)
        return [] if contents is None else [file.sha256 for file in contents.files.values()]

    def leading(self) -> dict[str, int]:
        """Return the version that each label leads to: what was set, else the newest that was registered with it."""
        registered = {label: number for number in sorted(self.versions) for label in self.versions[number].labels}
        return {**registered, **self.labels}


class StoreIndex:
    """Models by name, and what can be asked of them. Errors: InvalidName for a name that may not be used."""

    def __init__(self, models: dict[str, ModelIndex]) -> None:
        #: Also models whose versions are all deleted. Replaced or added to by whoever writes to the store only.
        self._models = models

    def models(self) -> list[str]:
        """Return the names of models that have a version, sorted."""
        return sorted(name for name, index in list(self._models.items()) if index.versions)

    def versions(self, name: str) -> list[VersionRecord]:
        """Return a model's versions, oldest first. Errors: ModelNotFound."""
        index = self._index(name)
        return [index.stamped(record) for record in list(index.versions.values())]

    def record(self, name: str, version: int) -> VersionRecord:
        """Return one version. Errors: ModelNotFound; VersionNotFound."""
        index = self._index(name)
        return index.stamped(index.known(name, version))

    def active(self, name: str) -> int | None:
        """Return the version that answers where a request names none. Errors: ModelNotFound."""
        return self._index(name).active

    def chosen(self, name: str, version: int | None) -> int:
        """Return ``version``, or with None the active one. Errors: ModelNotFound; VersionNotFound."""
        if version is None:
            version = self.active(name)
            if version is None:
                raise VersionNotFound(name, 0)
        self.record(name, version)
        return version

    def check_active(self, name: str, version: int) -> None:
        """Errors: ModelNotFound; Superseded where another version answers by now, or none."""
        active = self._index(name).active
        if active != version:
            raise Superseded(f"version {version} of model {name!r} was to answer, and now {active or 'none'} is")

    def is_unloaded(self, name: str) -> bool:
        """Return whether no version answers because the model was unloaded. Errors: ModelNotFound."""
        return self._index(name).is_unloaded

    def loadable(self, name: str) -> int | None:
        """Return the version that loading the model means: the one that answers, or did, else the newest built one.

        Errors: ModelNotFound.
        """
        index = self._index(name)
        known = index.unloaded if index.active is None else index.active
        built = self._built(index)
        return known if known in built else max(built, default=None)

    def labels(self, name: str) -> dict[str, int]:
        """Return the labels that were set, with the version that each leads to. Errors: ModelNotFound."""
        return dict(self._index(name).labels)

    def history(self, name: str) -> list[Activation]:
        """Return what was activated, oldest first. Errors: ModelNotFound."""
        return list(self._index(name).history)

    def previous(self, name: str) -> int:
        """Return the version that rolling back leads to. Errors: ModelNotFound; Conflict where there is none."""
        index = self._index(name)
        target = rollback_target(index.history, index.active, self._built(index))
        if target is None:
            raise Conflict(
                f"model {name!r} has nothing to roll back to: no version that is still there answered before; "
                "activate one by its number"
            )
        return target

    def contents(self, name: str, version: int) -> Contents | None:
        """Return the files of a built version; None where a release before it built it.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built.
        """
        index = self._index(name)
        index.check_built(name, version)
        return index.contents.get(version)

    def _index(self, name: str) -> ModelIndex:
        index = self._models.get(check_name(name))
        if index is None or not index.versions:
            raise ModelNotFound(name)
        return index

    @staticmethod
    def _built(index: ModelIndex) -> list[int]:
        return [number for number, record in list(index.versions.items()) if record.state is State.BUILT]


def not_built(record: VersionRecord) -> str:
    """Say what a version is instead of built."""
    sentence = f"version {record.version} of model {record.model!r} is {record.state}, not {State.BUILT}"
    return f"{sentence}: {record.reason}" if record.reason else sentence
