"""What the catalog takes from the settings, and whom it tells what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["BuildObserver", "CatalogOptions"]

#: Called with the model's name and what became of a build: ``available`` or the error's class name.
BuildObserver = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """What the catalog takes from the settings. ``expected`` maps models to what registers them if missing."""

    import_packages: tuple[str, ...]
    batch_limit: int | None
    queue_rows: int
    default_timeout_s: float
    #: True: every build is one for invariant mode, whatever its spec says.
    invariant: bool = False
    #: How many built versions of a model are kept besides those in use; None: all.
    keep_versions: int | None = None
    #: Seconds between looks at a store that other servers change too.
    follow_s: float = 5.0
    expected: Mapping[str, str] = field(default_factory=dict)
