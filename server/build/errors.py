"""Why a registration didn't become an artifact.

::

    RowwiseError
    └── BuildError
        ├── SourceRefused            the source isn't one that this server takes
        │   └── ArchiveError
        │       ├── NotAnArchive     neither .tar.gz nor .zip
        │       ├── ArchiveDamaged   cut short, or its checksums don't match
        │       ├── ArchiveUnsafe    a path that climbs, a link, a device, an entry twice
        │       ├── ArchiveTooLarge  more bytes, entries or path than a limit allows
        │       └── NotASavedModel   unpacked, and no saved_model.pb in it
        ├── BuildFailed              the builder said no, and why
        ├── BuildTimeout             it took longer than build_timeout_s
        ├── BuildMemoryExceeded      it needed more than build_memory_bytes
        ├── BuildDiskExceeded        it wrote more than build_disk_bytes
        ├── JailIncomplete           not taken, or not begun: this machine can't jail it as it should be
        └── BuildCrashed             it died, or stopped making sense

The builder is another process: what is raised there arrives in the server as ``BuildFailed`` with the class's
name as its ``kind`` and the same sentence.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Sequence

from server.errors import RowwiseError

__all__ = [
    "ArchiveDamaged",
    "ArchiveError",
    "ArchiveTooLarge",
    "ArchiveUnsafe",
    "BuildCrashed",
    "BuildDiskExceeded",
    "BuildError",
    "BuildFailed",
    "BuildMemoryExceeded",
    "BuildTimeout",
    "JailIncomplete",
    "NotASavedModel",
    "NotAnArchive",
    "SourceRefused",
]


class BuildError(RowwiseError):
    """Anything that ends a build without an artifact."""


class SourceRefused(BuildError):
    """What the registration names as its source is not one that this server takes."""


class ArchiveError(SourceRefused):
    """The uploaded archive was refused."""


class NotAnArchive(ArchiveError):
    """The file is neither a gzip-compressed tar nor a zip."""


class ArchiveDamaged(ArchiveError):
    """The archive is cut short or its contents contradict its own bookkeeping."""


class ArchiveUnsafe(ArchiveError):
    """The archive holds an entry that no SavedModel needs and that could reach outside of its directory."""


class ArchiveTooLarge(ArchiveError):
    """The archive unpacks to more than a limit allows."""


class NotASavedModel(ArchiveError):
    """The archive is fine, and holds no SavedModel, or more than one."""


class BuildFailed(BuildError):
    """The builder ended in order and refused. ``kind`` is the name of the error class in the builder."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class BuildTimeout(BuildError):
    """The build took longer than ``build_timeout_s``."""

    def __init__(self, model: str, version: int, *, limit_s: float) -> None:
        super().__init__(
            f"version {version} of model {model!r} was not built within build_timeout_s = {limit_s:g} seconds: "
            "raise it, or ask for fewer buckets"
        )
        self.limit_s = limit_s


class BuildMemoryExceeded(BuildError):
    """The builder's processes held more memory than ``build_memory_bytes``."""

    def __init__(self, model: str, version: int, *, limit_bytes: int, used_bytes: int) -> None:
        super().__init__(
            f"building version {version} of model {model!r} took {used_bytes} bytes of memory, over "
            f"build_memory_bytes = {limit_bytes}: raise it, or ask for smaller or fewer buckets"
        )
        self.limit_bytes = limit_bytes
        self.used_bytes = used_bytes


class BuildDiskExceeded(BuildError):
    """The builder wrote more than ``build_disk_bytes``."""

    def __init__(self, model: str, version: int, *, limit_bytes: int, used_bytes: int) -> None:
        super().__init__(
            f"building version {version} of model {model!r} took {used_bytes} bytes of the disk, over "
            f"build_disk_bytes = {limit_bytes}: raise it, or ask for fewer buckets"
        )
        self.limit_bytes = limit_bytes
        self.used_bytes = used_bytes


class JailIncomplete(BuildError):
    """A build that needs a whole jail was not begun, as this machine has none."""


class BuildCrashed(BuildError):
    """The builder died or broke its protocol. Exactly one of ``signal`` and ``exit_code`` is set if it ended itself.

    ``what`` completes the sentence "the builder of ... "; ``output`` is the end of what it printed.
    """

    def __init__(
        self,
        model: str,
        version: int,
        what: str,
        *,
        signal: int | None = None,
        exit_code: int | None = None,
        output: Sequence[str] = (),
    ) -> None:
        sentence = f"the builder of version {version} of model {model!r} {what}"
        if output:
            sentence += "; the end of its output:\n" + "\n".join(output)
        super().__init__(sentence)
        self.signal = signal
        self.exit_code = exit_code
        self.output = tuple(output)

    @classmethod
    def by_signal(cls, model: str, version: int, signal: int, *, output: Sequence[str] = ()) -> BuildCrashed:
        """Say which signal ended the builder. SIGKILL that nobody here sent is mostly the kernel's memory killer."""
        try:
            name = signals.Signals(signal).name
        except ValueError:
            name = f"signal {signal}"
        what = f"was killed by {name}"
        if signal == signals.SIGKILL:
            what += " from outside, most likely because the machine ran out of memory"
        return cls(model, version, what, signal=signal, output=output)

    @classmethod
    def by_exit(cls, model: str, version: int, exit_code: int, *, output: Sequence[str] = ()) -> BuildCrashed:
        """Say with which code the builder left without a result."""
        what = f"left with exit code {exit_code} and no result"
        return cls(model, version, what, exit_code=exit_code, output=output)
