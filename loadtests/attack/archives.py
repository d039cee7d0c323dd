"""Archives that want out of the directory that they are unpacked in, or more of it than there is."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable

from loadtests.attack.case import attack
from loadtests.attack.target import Target, archive_of

__all__: list[str] = []

_AREA = "intake: archives"
_MODEL = {"saved_model.pb": b"\x08\x01"}


def _member(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def _tars(target: Target) -> dict[str, Callable[[], bytes]]:
    victim = str(target.secrets.untouched)
    return {
        "a path that climbs": lambda: archive_of({**_MODEL, "../../escaped": b"x"}),
        "an absolute path": lambda: archive_of({**_MODEL, victim: b"x"}),
        "a symbolic link out": lambda: archive_of(_MODEL, members=[_member("variables", tarfile.SYMTYPE, "/etc")]),
        "a hard link out": lambda: archive_of(_MODEL, members=[_member("assets/a", tarfile.LNKTYPE, victim)]),
        "a device": lambda: archive_of(_MODEL, members=[_member("variables/null", tarfile.CHRTYPE)]),
        "a fifo": lambda: archive_of(_MODEL, members=[_member("variables/fifo", tarfile.FIFOTYPE)]),
        "one name twice": lambda: archive_of(_MODEL, members=[_member("saved_model.pb", tarfile.REGTYPE)]),
        "a file that is a directory too": lambda: archive_of({**_MODEL, "assets": b"", "assets/a": b""}),
        "a name with a NUL": lambda: archive_of({**_MODEL, "assets/a\0b": b"x"}),
        "a name of 10,000 characters": lambda: archive_of({**_MODEL, "assets/" + "a/" * 5_000: b"x"}),
        "200,000 files": lambda: archive_of({**_MODEL, **{f"assets/{n}": b"" for n in range(200_000)}}),
    }


def _uploads_of_tars() -> None:
    for name in (
        "a path that climbs",
        "an absolute path",
        "a symbolic link out",
        "a hard link out",
        "a device",
        "a fifo",
        "one name twice",
        "a file that is a directory too",
        "a name with a NUL",
        "a name of 10,000 characters",
        "200,000 files",
    ):

        def run(target: Target, name: str = name) -> str:
            return target.refused(target.upload(_tars(target)[name]()))

        attack(_AREA, name)(run)


_uploads_of_tars()


@attack(_AREA, "a bomb of gzip: 20 GB of zeros in 20 MB")
def gzip_bomb(target: Target) -> str:
    """A member that says its true size, which is a thousand times that of the archive."""
    info = tarfile.TarInfo("variables/variables.data-00000-of-00001")
    info.size = 20 * 2**30
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1) as file:
        file.write(info.tobuf())
        zeros = bytes(2**24)
        for _ in range(120):  # 2 GB: past the limit long before its end
            file.write(zeros)
    return target.refused(target.upload(buffer.getvalue()))


@attack(_AREA, "a zip whose sizes are lies")
def lying_zip(target: Target) -> str:
    """The directory says 10 bytes; the member inflates to 100 MB."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("saved_model.pb", bytes(100 * 2**20))
    data = buffer.getvalue().replace((100 * 2**20).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    return target.refused(target.upload(data, name="model.zip"))


@attack(_AREA, "a zip in a zip in a zip")
def nested_zips(target: Target) -> str:
    """Nothing in an archive is unpacked again."""
    data = b"\0" * 2**20
    for _ in range(4):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("saved_model.pb", data)
        data = buffer.getvalue()
    return target.refused(target.upload(data, name="model.zip"))


@attack(_AREA, "neither a tar nor a zip")
def no_archive(target: Target) -> str:
    """A pickle that would run a command, were it ever loaded."""
    return target.refused(target.upload(b"cos\nsystem\n(S'touch /tmp/pwned'\ntR.", name="model.tar.gz"))
