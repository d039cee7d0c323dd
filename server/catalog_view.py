"""What is asked of the models, by requests and by the management API: nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from server.artifact import CERTIFICATE_FILE, COSTS_FILE
from server.batching import Draining
from server.following import Followed
from server.labelling import Labelling
from server.serving import ServedModel
from server.serving_versions import ServingVersion, labels_leading_to
from server.shadows import Shadows
from server.store import Conflict, ModelNotReady, ModelStore, VersionNotLoaded, VersionRecord
from server.switching import Switching
from server.version_life import Life, as_lived, is_unloaded, why_not

__all__ = ["CatalogView"]


class CatalogView:
    """Models by name with their versions, as the store and the serving parts know them.

    Errors of every method that takes a name: InvalidName.
    """

    def __init__(
        self,
        *,
        store: ModelStore,
        lives: dict[tuple[str, int], Life],
        switching: Switching,
        shadows: Shadows,
        labelling: Labelling,
    ) -> None:
        self._store = store
        #: Each version that something has become of since the server was started.
        self._lives = lives
        self._switching = switching
        self._shadows = shadows
        self._labelling = labelling
        #: Why a model that should serve does not, by name.
        self._missing = switching.missing
        self._has_started = False
        self._is_draining = False

    def resolve(self, name: str, version: int | None = None) -> ServedModel:
        """Return the handle for predictions.

        Errors: ModelNotFound; VersionNotFound; ModelNotReady if it exists and does not serve, VersionNotLoaded if
            that stays so; Draining.
        """
        hosted = self._switching.answering(name, version)
        if hosted is not None:
            if self._is_draining:
                raise Draining
            return hosted.model
        record = self.version(name, version) if version is not None else self._representative(name)
        # Until it is known what is to be loaded, everything may be.
        is_expected = name in self._missing or name in self._labelling.missing
        is_at_rest = self._has_started and is_unloaded(record) and not is_expected
        raise (VersionNotLoaded if is_at_rest else ModelNotReady)(name, version, why_not(record))

    def serving(self) -> list[ServingVersion]:
        """Return every version that answers where a request names none."""
        return [
            ServingVersion(hosted.model, labels_leading_to(hosted.model.version, self.versions(name)))
            for name, hosted in self._switching.all_serving()
        ]

    def models(self) -> list[VersionRecord]:
        """Return every version of every model, by name, oldest first."""
        return [record for name in self._store.models() for record in self.versions(name)]

    def versions(self, name: str) -> list[VersionRecord]:
        """Return every version, oldest first. Errors: ModelNotFound."""
        return [self._overlaid(record) for record in self._store.versions(name)]

    def version(self, name: str, version: int) -> VersionRecord:
        """Return one version. Errors: ModelNotFound; VersionNotFound."""
        return self._overlaid(self._store.record(name, version))

    def labels(self, name: str) -> Mapping[str, int]:
        """Return the labels that were set, with the version that each leads to. Errors: ModelNotFound."""
        return self._store.labels(name)

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return what was activated, oldest first, with who did it and when. Errors: ModelNotFound."""
        return [activation.to_json() for activation in self._store.history(name)]

    def certificate(self, name: str, version: int | None = None) -> bytes:
        """Return the certificate as JSON. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        return self._artifact_file(name, version, CERTIFICATE_FILE)

    def costs(self, name: str, version: int | None = None) -> bytes:
        """Return the measured costs as JSON. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        return self._artifact_file(name, version, COSTS_FILE)

    def shadow(self, name: str, version: int) -> dict[str, Any]:
        """Return how a shadow's answers compare. Errors: ModelNotFound; VersionNotFound; Conflict if it is none."""
        self._store.record(name, version)
        report = self._shadows.report(name, version)
        if report is None:
            raise Conflict(
                f"version {version} of model {name!r} is no shadow; POST a share to ...:shadow to make it one"
            )
        return report

    def readiness(self) -> list[str]:
        """Return why the server is not ready, a sentence each; empty when it is."""
        if self._is_draining:
            return ["the server is stopping"]
        if not self._has_started:
            return ["the server is starting"]
        missing = [*sorted(self._missing.items()), *sorted(self._labelling.missing.items())]
        return [f"model {name!r}: {reason}" for name, reason in missing]

    def notes(self) -> list[str]:
        """Return what is wrong and keeps nobody from being answered, a sentence each."""
        return [self._store.trouble] if isinstance(self._store, Followed) and self._store.trouble else []

    def _representative(self, name: str) -> VersionRecord:
        """Return the record that stands for a model: its active version, else its newest. Errors: ModelNotFound."""
        versions = self.versions(name)
        return next((record for record in versions if record.active), versions[-1])

    def _overlaid(self, record: VersionRecord) -> VersionRecord:
        lived = as_lived(record, self._lives.get((record.model, record.version)))
        report = self._shadows.report(record.model, record.version)
        return lived if report is None else replace(lived, shadow=report)

    def _artifact_file(self, name: str, version: int | None, file: str) -> bytes:
        if version is None:
            version = self._representative(name).version
        try:
            return (self._store.artifact_dir(name, version) / file).read_bytes()
        except FileNotFoundError:
            raise ModelNotReady(name, version, "its files are not on this server; they are once it is loaded") from None
