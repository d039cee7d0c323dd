"""The console's files, each compressed once, at its first use."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

__all__ = ["PLOTLY", "Asset", "Assets"]

#: What the charts' library is called here.
PLOTLY = "plotly.min.js"

_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: Ours may change with the next start of the server; the charts' library (4.7 MB) does so once in some months.
_ALWAYS_ASK = "no-cache"
_FOR_A_DAY = "max-age=86400"


@dataclass(slots=True)
class Asset:
    """One file. What takes time is done by ``prepare``, on a thread."""

    path: Path
    media_type: str
    cache_control: str
    #: Empty until prepared.
    etag: str = ""
    gzipped: bytes = b""
    _lock: Lock = field(default_factory=Lock)

    def prepare(self) -> None:
        """Read and compress it, once: 0.2 s for the charts' library, during which others go on. Errors: OSError."""
        with self._lock:
            if self.etag:
                return
            content = self.path.read_bytes()
            # No time in it, so that the same file is the same bytes.
            self.gzipped = gzip.compress(content, compresslevel=6, mtime=0)
            # Weak, as it is for both codings.
            self.etag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'

    def plain(self) -> bytes:
        """Return it for the rare client that takes no gzip."""
        return gzip.decompress(self.gzipped)


class Assets:
    """The files of a directory by their names, and the charts' library. Nothing outside of that list is ever read."""

    def __init__(self, directory: Path, plotly: Path | None) -> None:
        self._assets = {
            path.name: Asset(path, f"{_TYPES[path.suffix]}; charset=utf-8", _ALWAYS_ASK)
            for path in sorted(directory.iterdir())
            if path.suffix in _TYPES
        }
        if plotly is not None:
            self._assets[PLOTLY] = Asset(plotly, "text/javascript; charset=utf-8", _FOR_A_DAY)

    @classmethod
    def installed(cls) -> Assets:
        """Return what is installed. plotly is found, not imported: that takes a tenth of a second."""
        return cls(Path(__file__).with_name("static"), _plotly())

    @property
    def names(self) -> tuple[str, ...]:
        """What there is."""
        return tuple(self._assets)

    def find(self, name: str) -> Asset | None:
        """Return a file; None: there is none of that name."""
        return self._assets.get(name)


def _plotly() -> Path | None:
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "package_data" / PLOTLY
    return path if path.is_file() else None
