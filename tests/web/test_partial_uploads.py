"""The files of unfinished uploads: room for them, what stays of them over a restart, and when they are removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from server.store.errors import StoreFull
from server.web.errors import BodyTooLarge, ClientGone, UploadConflict, UploadNotFound
from server.web.partial_uploads import PartialUpload, PartialUploads


async def pieces(*chunks: bytes, lost: bool = False) -> AsyncIterator[bytes]:
    for chunk in chunks:
        await asyncio.sleep(0)
        yield chunk
    if lost:
        raise ClientGone("gone")


def test_an_upload_that_the_disk_has_no_room_for_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 2**20)
    # Room for 1,000 bytes in all.
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=10, f_frsize=100))
    with pytest.raises(StoreFull, match="No space left"):
        uploads.begin(1_001, filename="m.zip", sha256=None, owner="local")
    begun = uploads.begin(600, filename="m.zip", sha256=None, owner="local")
    with pytest.raises(StoreFull):
        uploads.begin(500, filename="m.zip", sha256=None, owner="local")
    # What has come of one is on the disk, which knows of it.
    asyncio.run(uploads.append(begun.id, 0, pieces(b"a" * 400)))
    uploads.begin(500, filename="m.zip", sha256=None, owner="local")


def test_the_bytes_of_one_leave_room_for_others(tmp_path: Path) -> None:
    uploads = PartialUploads(tmp_path, max_bytes=lambda: 100)
    for _ in range(3):
        uploads.begin(100, filename="m.zip", sha256=None, owner="greedy")
    with pytest.raises(UploadConflict):
        uploads.begin(1, filename="m.zip", sha256=None, owner="greedy")
    uploads.begin(100, filename="m.zip", sha256=None, owner="other")
    with pytest.raises(UploadConflict):
        uploads.begin(1, filename="m.zip", sha256=None, owner="third")


def test_what_came_before_the_connection_was_lost_stays_over_a_restart(tmp_path: Path) -> None:
    before = PartialUploads(tmp_path / "partial", max_bytes=lambda: 2**20)
    upload = before.begin(1000, filename="m.zip", sha256=None, owner="local")
    with pytest.raises(ClientGone):
        asyncio.run(before.append(upload.id, 0, pieces(b"a" * 300, b"b" * 100, lost=True)))
    after = PartialUploads(tmp_path / "partial", max_bytes=lambda: 2**20)
    assert after.look_up(upload.id).offset == 400
    assert asyncio.run(after.append(upload.id, 400, pieces(b"c" * 600))).offset == 1000

    async def take() -> bytes:
        async with after.taken(upload.id) as whole:
            return whole.path.read_bytes()

    assert asyncio.run(take()) == b"a" * 300 + b"b" * 100 + b"c" * 600
    with pytest.raises(UploadNotFound):
        after.look_up(upload.id)


def test_an_upload_that_could_not_be_registered_is_there_again(tmp_path: Path) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 2**20)
    upload = uploads.begin(3, filename="m.zip", sha256=None, owner="local")

    async def fail() -> None:
        await uploads.append(upload.id, 0, pieces(b"abc"))
        async with uploads.taken(upload.id):
            with pytest.raises(UploadConflict, match="another request"):
                await uploads.append(upload.id, 3, pieces(b"d"))
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        asyncio.run(fail())
    assert uploads.look_up(upload.id).offset == 3


def test_uploads_that_nobody_goes_on_with_are_removed(tmp_path: Path) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 100)
    old, new = (uploads.begin(100, filename="m.zip", sha256=None, owner="local") for _ in range(2))
    day_and_more = tmp_path.stat().st_mtime - 25 * 3600
    os.utime(tmp_path / "partial" / f"{old.id}.part", (day_and_more, day_and_more))
    (tmp_path / "partial" / "leftover.part").touch()
    for _ in range(2):
        uploads.begin(100, filename="m.zip", sha256=None, owner="local")
    assert not (tmp_path / "partial" / "leftover.part").exists()
    with pytest.raises(UploadNotFound):
        uploads.look_up(old.id)
    assert uploads.look_up(new.id).offset == 0
    with pytest.raises(UploadConflict):  # three times max_bytes of one owner
        uploads.begin(100, filename="m.zip", sha256=None, owner="local")
    with pytest.raises(BodyTooLarge):
        uploads.begin(101, filename="m.zip", sha256=None, owner="local")


def test_they_are_removed_by_time_too_but_not_one_that_is_being_written_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 100)
    kept, left = (uploads.begin(100, filename="m.zip", sha256=None, owner="local") for _ in range(2))

    def leave_alone(upload: PartialUpload) -> None:
        day_and_more = tmp_path.stat().st_mtime - 25 * 3600
        os.utime(tmp_path / "partial" / f"{upload.id}.part", (day_and_more, day_and_more))

    def is_there(upload: PartialUpload) -> bool:
        return (tmp_path / "partial" / f"{upload.id}.part").exists()

    async def slow() -> AsyncIterator[bytes]:
        yield b"abc"
        leave_alone(kept)
        await asyncio.sleep(0)
        while is_there(left):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)

    async def test() -> None:
        clearing = asyncio.create_task(uploads.keep_clear(every_s=0.0))
        await uploads.append(left.id, 0, pieces(b"1234567"))
        leave_alone(left)
        assert (await uploads.append(kept.id, 0, slow())).offset == 3
        clearing.cancel()
        await asyncio.wait({clearing})

    caplog.set_level("INFO")
    asyncio.run(test())
    assert (is_there(kept), is_there(left)) == (True, False)
    assert "7 bytes" in caplog.text


def test_a_disk_that_refuses_to_remove_them_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 100)
    n_tried = 0

    def refuse() -> int:
        nonlocal n_tried
        n_tried += 1
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(uploads, "remove_abandoned", refuse)

    async def test() -> None:
        clearing = asyncio.create_task(uploads.keep_clear(every_s=0.0))
        while n_tried < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        clearing.cancel()
        await asyncio.wait({clearing})

    asyncio.run(test())
    assert "Read-only file system" in caplog.text
