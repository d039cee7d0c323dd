"""What a store holds when it is opened, whatever ended the process before.

Nothing here raises over one damaged entry: that version is FAILED with the reason, and the others are served.

1. An entry that wasn't renamed into place, a version in the trash and an upload are leftovers: removed.
2. A BUILDING version with an ``artifact/`` was committed, for its rename is the commit: it becomes BUILT.
3. A BUILDING version without one has lost its builder. With its source it stays BUILDING, to be built again, but not
   for ever: what ended the server time and again while it was built becomes FAILED, and so does one without a source.
4. A BUILT version whose artifact is not what was built, by its files' sizes, and a version whose record can't be read,
   are FAILED in memory only: the disk keeps the evidence.
5. Versions up to ``deleted`` in ``numbers.json`` were deleted with their model: removed.
6. Blobs that no artifact has any more are removed.
7. What the store didn't make is reported and left alone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from server.artifact import MANIFEST_FILE
from server.spec import MODEL_NAME
from server.store.activation import read_history
from server.store.blobs import Blobs
from server.store.contents import Contents
from server.store.durable import Disk, is_unfinished, read_json
from server.store.errors import StoreDamaged, StoreUnwritable
from server.store.index import ModelIndex
from server.store.layout import Layout, VersionLayout, version_number
from server.store.records import DURABLE_STATES, Intake, State, VersionRecord

__all__ = ["Recovered", "recover"]

#: Builds that the server's sudden end may have cut off before the build is taken for the cause.
_MAX_ATTEMPTS = 3

STOPPED_WHILE_BUILDING = "the server stopped while it was being built: register it again"


@dataclass(slots=True)
class Recovered:
    """A store's contents, and a sentence for each thing that was found broken."""

    models: dict[str, ModelIndex] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)


def recover(layout: Layout, disk: Disk, *, verify: bool = False) -> Recovered:
    """Read the store and finish or undo what was under way. The lock must be held. ``verify``: read every artifact.

    Errors: StoreUnwritable if the directories can't be made or listed.
    """
    for directory in (layout.uploads, layout.trash, layout.blobs, layout.models):
        disk.make_directory(directory)
    for directory in (layout.uploads, layout.trash):
        for entry in _entries(directory):
            disk.discard(entry)
    recovered = Recovered()
    for entry in _entries(layout.models):
        if entry.is_dir() and not entry.is_symlink() and MODEL_NAME.fullmatch(entry.name):
            recovered.models[entry.name] = _recover_model(layout, disk, entry.name, recovered.damage, verify=verify)
        else:
            recovered.damage.append(f"{str(entry)!r} is not a model's directory: left alone")
    Blobs(layout.blobs, disk).sweep()
    return recovered


def _recover_model(layout: Layout, disk: Disk, name: str, damage: list[str], *, verify: bool) -> ModelIndex:
    index = ModelIndex()
    try:
        numbers = read_json(layout.numbers(name))
        index.last, index.deleted = _number(layout.numbers(name), numbers, "last"), int(numbers.get("deleted", 0))
    except FileNotFoundError:
        pass
    except (StoreDamaged, TypeError, ValueError) as error:
        damage.append(f"{error}: the numbers of deleted versions of model {name!r} may come again")
    state_files = (layout.numbers(name), layout.active(name), layout.labels(name))
    for entry in _entries(layout.model(name)):
        number = version_number(entry.name)
        if is_unfinished(entry):
            disk.discard(entry)
        elif number is not None and entry.is_dir() and not entry.is_symlink():
            if number <= index.deleted:
                disk.discard(entry)
                continue
            version = VersionLayout(entry)
            record = _recover_version(version, disk, name, number, damage)
            if record.state is State.BUILT:
                record = _check_contents(version, record, index, damage, verify=verify)
            index.versions[number] = record
            index.last = max(index.last, number)
        elif entry not in state_files:
            damage.append(f"{str(entry)!r} is not a version's directory: left alone")
    index.versions = dict(sorted(index.versions.items()))
    _recover_active(layout, name, index, damage)
    _recover_labels(layout, name, index, damage)
    answered = index.unloaded if index.active is None else index.active
    for number, record in index.versions.items():
        if record.awaits_switch and answered is not None and number <= answered:
            # It has answered, or a newer one has; who goes back to an older one later must not find it in the way.
            index.versions[number] = replace(record, awaits_switch=False)
            with suppress(StoreUnwritable):
                path = layout.version(name, number).record
                disk.write_json(path, record_to_json(index.versions[number]))
    return index


def _recover_version(version: VersionLayout, disk: Disk, name: str, number: int, damage: list[str]) -> VersionRecord:
    try:
        record = record_from_json(name, number, version.record)
    except (FileNotFoundError, StoreDamaged) as error:
        reason = str(error) if isinstance(error, StoreDamaged) else str(StoreDamaged(version.record, "it is missing"))
        damage.append(reason)
        return VersionRecord(
            model=name, version=number, state=State.FAILED, reason=reason, created_at=_modified_at(version.path)
        )
    committed = (version.artifact / MANIFEST_FILE).is_file()
    if record.state is State.BUILDING:
        try:
            if committed:
                # The process may have ended between the rename and the disk.
                disk.sync_tree(version.artifact)
                record = replace(record, state=State.BUILT)
            elif version.source_record.is_file() and record.attempts < _MAX_ATTEMPTS:
                _clear_for_building(version, disk)
                record = replace(record, attempts=record.attempts + 1)
            elif version.source_record.is_file():
                reason = f"the server ended {record.attempts} times while it was being built: it is not built again"
                record = replace(record, state=State.FAILED, reason=reason)
            else:
                record = replace(record, state=State.FAILED, reason=STOPPED_WHILE_BUILDING)
            disk.write_json(version.record, record_to_json(record))
        except (StoreDamaged, StoreUnwritable) as error:
            damage.append(str(error))
            return replace(record, state=State.FAILED, reason=str(error))
    elif record.state is State.BUILT and not committed:
        reason = str(StoreDamaged(version.artifact, f"it has no {MANIFEST_FILE}; register the model again"))
        damage.append(reason)
        return replace(record, state=State.FAILED, reason=reason)
    leftovers = [] if record.state is State.BUILDING else [version.source, version.staging]
    if record.state is State.FAILED:
        leftovers.append(version.artifact)
    if record.state is not State.BUILT:
        leftovers.append(version.contents)
    for leftover in (*leftovers, *(entry for entry in _entries(version.path) if is_unfinished(entry))):
        if leftover.exists() or leftover.is_symlink():
            disk.discard(leftover)
    return record


def _check_contents(
    version: VersionLayout, record: VersionRecord, index: ModelIndex, damage: list[str], *, verify: bool
) -> VersionRecord:
    """Compare an artifact with what it is said to consist of; one that a release before this one built is not."""
    try:
        contents = Contents.from_json(read_json(version.contents))
    except FileNotFoundError:
        return record
    except (StoreDamaged, ValueError) as error:
        # What is served is the artifact, and nothing says that there is anything wrong with it.
        damage.append(str(error if isinstance(error, StoreDamaged) else StoreDamaged(version.contents, str(error))))
        return record
    faults = contents.differences(version.artifact) if verify else contents.missing(version.artifact)
    if faults:
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        reason = str(StoreDamaged(version.artifact, f"{faults[0]}{more}; register the model again"))
        damage.append(reason)
        return replace(record, state=State.FAILED, reason=reason)
    index.contents[record.version] = contents
    return record


def _clear_for_building(version: VersionLayout, disk: Disk) -> None:
    """Leave of a version's source what was registered, and nothing of what its builder made."""
    for entry in _entries(version.source):
        if entry not in (version.source_record, version.archive):
            disk.discard(entry)
    if version.staging.exists():
        disk.discard(version.staging)
    disk.make_directory(version.staging)


def _recover_active(layout: Layout, name: str, index: ModelIndex, damage: list[str]) -> None:
    path = layout.active(name)
    try:
        document = read_json(path)
        active = _number(path, document, "version")
    except FileNotFoundError:
        return
    except StoreDamaged as error:
        damage.append(f"{error}; no version of model {name!r} is active: activate one")
        return
    if active <= index.deleted:
        return
    index.history = [each for each in read_history(document) if each.version is None or each.version > index.deleted]
    record = index.versions.get(active)
    is_there = record is not None and record.state is State.BUILT
    if document.get("unloaded") is True:
        index.is_unloaded, index.unloaded = True, active if is_there else None
    elif is_there:
        index.active = active
    else:
        why = "is missing" if record is None else f"is {record.state}: {record.reason}"
        damage.append(f"the active version {active} of model {name!r} {why}; activate another one")


def _recover_labels(layout: Layout, name: str, index: ModelIndex, damage: list[str]) -> None:
    path = layout.labels(name)
    try:
        document = read_json(path)
        labels = {label: _number(path, document, label) for label in document}
    except FileNotFoundError:
        return
    except StoreDamaged as error:
        damage.append(f"{error}; the labels of model {name!r} lead nowhere: set them again")
        return
    # What was deleted with the model, between two steps.
    labels = {label: version for label, version in labels.items() if version > index.deleted}
    for label, version in labels.items():
        if version not in index.versions:
            damage.append(f"the label {label!r} of model {name!r} leads to version {version}, which is missing")
    index.labels = {label: version for label, version in labels.items() if version in index.versions}


def record_to_json(record: VersionRecord) -> dict[str, Any]:
    """Return what ``record.json`` holds. Errors: ValueError for a state that the disk doesn't know."""
    if record.state not in DURABLE_STATES:
        raise ValueError(f"{record.state} is not a durable state")
    return {
        "state": str(record.state),
        "reason": record.reason,
        "created_at": record.created_at,
        "labels": dict(record.labels),
        "attempts": record.attempts,
        "awaits_switch": record.awaits_switch,
        "intake": record.intake.to_json(),
    }


def record_from_json(name: str, number: int, path: Path) -> VersionRecord:
    """Read ``record.json``. Errors: FileNotFoundError; StoreDamaged."""
    value = read_json(path)
    try:
        state = State(value["state"])
        reason, created_at, labels = value["reason"], value["created_at"], dict(value["labels"])
        # Stores of earlier releases know none of these.
        intake = Intake.from_json(value.get("intake", {}))
        attempts, awaits_switch = int(value.get("attempts", 0)), bool(value.get("awaits_switch", False))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreDamaged(path, repr(error)) from error
    if state not in DURABLE_STATES:
        raise StoreDamaged(path, f"{state} is not a durable state")
    if not isinstance(reason, str) or not isinstance(created_at, str):
        raise StoreDamaged(path, "'reason' and 'created_at' must be strings")
    return VersionRecord(
        model=name,
        version=number,
        state=state,
        reason=reason,
        created_at=created_at,
        labels=labels,
        attempts=attempts,
        awaits_switch=awaits_switch,
        intake=intake,
    )


def _number(path: Path, value: dict[str, Any], key: str) -> int:
    number = value.get(key)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise StoreDamaged(path, f"{key!r} must be a number that isn't negative, got {number!r}")
    return number


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError as error:
        raise StoreUnwritable(f"{str(directory)!r} can't be listed ({error.strerror})") from error


def _modified_at(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
