"""How much a store may hold: versions and bytes, of one model and of all.

Bytes are those on the disk: a file that several versions share counts once. A build is refused before it starts where
nothing more fits, and what it has made is refused where that does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from server.store.contents import Contents
from server.store.errors import QuotaExceeded
from server.store.index import ModelIndex

__all__ = ["Quotas", "stored_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Each bound is None where there is none. Errors of every check: QuotaExceeded."""

    max_versions: int | None = None
    max_model_bytes: int | None = None
    max_store_bytes: int | None = None

    def check_new_version(self, name: str, index: ModelIndex) -> None:
        """Refuse one more version of a model."""
        if self.max_versions is not None and len(index.versions) >= self.max_versions:
            raise QuotaExceeded(
                f"model {name!r} has {len(index.versions)} versions, as many as it may (max_versions): delete one, or "
                "let old ones go by themselves (keep_versions)"
            )

    def check_bytes(
        self, name: str, models: Mapping[str, ModelIndex], *, contents: Contents | None, more: int = 0
    ) -> None:
        """Refuse what would take more bytes than allowed: ``contents`` of one more artifact, or ``more`` bytes."""
        new = [] if contents is None else [contents]
        if self.max_model_bytes is not None:
            known = list(models[name].contents.values()) if name in models else []
            needed = stored_bytes((*known, *new)) + more
            if needed > self.max_model_bytes or (contents is None and needed >= self.max_model_bytes):
                raise QuotaExceeded(
                    f"model {name!r} would have {needed} bytes, of {self.max_model_bytes} that it may "
                    "(max_model_bytes): delete versions that are not needed any more"
                )
        if self.max_store_bytes is not None:
            known = [each for index in models.values() for each in index.contents.values()]
            needed = stored_bytes((*known, *new)) + more
            if needed > self.max_store_bytes or (contents is None and needed >= self.max_store_bytes):
                raise QuotaExceeded(
                    f"the store would have {needed} bytes, of {self.max_store_bytes} that it may (max_store_bytes): "
                    "delete versions that are not needed any more"
                )


def stored_bytes(artifacts: Iterable[Contents]) -> int:
    """Return the bytes that artifacts take together: files with the same contents are one."""
    return sum({file.sha256: file.n_bytes for each in artifacts for file in each.files.values()}.values())
