"""Whether a directory is a store, and one that this release reads."""

from __future__ import annotations

from server.store.durable import read_json
from server.store.errors import NotAStore
from server.store.layout import STORE_FORMAT, Layout

__all__ = ["check_format"]


def check_format(layout: Layout) -> None:
    """Errors: NotAStore, for a directory of something else or a store of another format; StoreDamaged."""
    try:
        found = read_json(layout.format).get("format_version")
    except FileNotFoundError:
        # Hidden entries and lost+found belong to file systems and volumes; "lock" is ours, made before the format.
        foreign = sorted(
            entry.name
            for entry in layout.root.iterdir()
            if not entry.name.startswith(".") and entry.name not in ("lock", "lost+found")
        )
        if foreign:
            raise NotAStore(
                f"{str(layout.root)!r} is not a model store (it holds {foreign[0]!r} and no {layout.format.name}): "
                "name a new or empty directory as --store"
            ) from None
        return
    if found != STORE_FORMAT:
        raise NotAStore(
            f"{str(layout.root)!r} is a store of format {found!r}, this server reads format {STORE_FORMAT}: "
            "use the release that wrote it, or register the models again in a new store"
        )
