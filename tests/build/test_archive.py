"""Archives that nobody vouches for: what a SavedModel needs is unpacked, everything else is refused by name."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from server.build import (
    ArchiveUnsafe,
)
from server.build.archive import extract_saved_model
from tests.build.doubles.archives import MODEL, Pack, contents, member, pack_tar, pack_zip, refuse, tar_gz

# What is taken.


@pytest.mark.parametrize("prefix", ["", "./", "digits/", "./digits//"])
def test_a_saved_model_at_the_top_or_one_directory_down_is_found(tmp_path: Path, pack: Pack, prefix: str) -> None:
    archive = pack(tmp_path / "upload", {prefix + name: value for name, value in MODEL.items()})
    found = extract_saved_model(archive, tmp_path / "unpacked")
    assert contents(found) == MODEL
    assert found == tmp_path / "unpacked" / prefix.replace(".", "").strip("/")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_tar_makes_of_a_directory_is_taken_in_each_of_its_formats(tmp_path: Path, form: int) -> None:
    # Longer than a ustar name field, so that each format needs its own way to say it.
    long_name = "assets/" + "/".join(["d" * 40] * 3) + "/" + "f" * 60
    files = {**MODEL, long_name: b"vocabulary"}
    for name, value in files.items():
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    with tarfile.open(tmp_path / "upload", "w:gz", format=form) as tar:
        tar.add(tmp_path / "model", arcname=".")
    assert contents(extract_saved_model(tmp_path / "upload", tmp_path / "unpacked")) == files


def test_a_path_that_is_not_ascii_is_kept(tmp_path: Path, pack: Pack) -> None:
    files = {**MODEL, "assets/größe-語彙.txt": b"words"}
    assert contents(extract_saved_model(pack(tmp_path / "upload", files), tmp_path / "unpacked")) == files


def test_the_archives_owners_and_modes_are_not_taken_over(tmp_path: Path) -> None:
    info = member("saved_model.pb")
    info.mode, info.uid, info.mtime = 0o6777, 12345, 1
    found = extract_saved_model(tar_gz(tmp_path / "upload", [(info, b"graph")]), tmp_path / "unpacked")
    status = (found / "saved_model.pb").stat()
    assert stat.S_IMODE(status.st_mode) & 0o7133 == 0
    assert status.st_uid == os.getuid()
    assert status.st_mtime > 1


def test_a_gzip_of_several_members_is_read_to_its_end(tmp_path: Path) -> None:
    plain = gzip.decompress(pack_tar(tmp_path / "one", MODEL).read_bytes())
    (tmp_path / "upload").write_bytes(gzip.compress(plain[:700]) + gzip.compress(plain[700:]))
    assert contents(extract_saved_model(tmp_path / "upload", tmp_path / "unpacked")) == MODEL


def test_zeros_that_compress_a_thousand_to_one_are_taken_as_long_as_they_are_few(tmp_path: Path, pack: Pack) -> None:
    files = {**MODEL, "variables/variables.data": bytes(30 * 2**20)}
    assert contents(extract_saved_model(pack(tmp_path / "upload", files), tmp_path / "unpacked")) == files


# What climbs.

CLIMBING = [
    "../evil",
    "a/../../evil",
    "a/..",
    "..",
    "/evil",
    "//evil",
    "a\\..\\..\\evil",
    "C:\\evil",
    "a/b\nc",
    "a\x7f",
]


@pytest.mark.parametrize("name", CLIMBING)
def test_a_path_that_climbs_or_hides_is_refused(tmp_path: Path, pack: Pack, name: str) -> None:
    refuse(ArchiveUnsafe, "climbs|absolute|backslash", pack(tmp_path / "upload", {**MODEL, name: b"evil"}))


def test_a_climbing_path_in_an_extended_header_is_refused(tmp_path: Path) -> None:
    info = member("harmless")
    info.pax_headers = {"path": "../evil"}
    refuse(ArchiveUnsafe, "climbs", tar_gz(tmp_path / "upload", [(info, b"evil")]))


def test_a_global_header_that_renames_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "upload", "w:gz", pax_headers={"path": "../evil"}) as tar:
        tar.addfile(member("harmless"), io.BytesIO())
    refuse(ArchiveUnsafe, "global header", tmp_path / "upload")


def test_a_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "upload", "w:gz", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
        tar.addfile(member("assets/größe"), io.BytesIO())
    refuse(ArchiveUnsafe, "not UTF-8", tmp_path / "upload")


def test_a_zip_path_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    archive = pack_zip(tmp_path / "upload", {**MODEL, "evil.txt": b""})
    archive.write_bytes(archive.read_bytes().replace(b"evil.txt", b"evil\0txt"))
    refuse(ArchiveUnsafe, "zero byte", archive)


# What is neither file nor directory.


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a character device"),
        (tarfile.BLKTYPE, "a block device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.CONTTYPE, "of type b'7'"),
    ],
)
def test_a_link_or_device_is_refused_by_name(tmp_path: Path, kind: bytes, what: str) -> None:
    link = member("variables", kind, link="/etc/passwd")
    refuse(ArchiveUnsafe, f"entry 'variables' of the tar is {what}", tar_gz(tmp_path / "upload", [(link, b"")]))


def test_a_file_behind_a_link_never_gets_written(tmp_path: Path) -> None:
    members = [(member("variables", tarfile.SYMTYPE, link=str(tmp_path)), b""), (member("variables/evil"), b"evil")]
    refuse(ArchiveUnsafe, "symbolic link", tar_gz(tmp_path / "upload", members))


@pytest.mark.parametrize(("kind", "what"), [(stat.S_IFLNK, "a symbolic link"), (stat.S_IFIFO, "a device or pipe")])
def test_a_link_or_pipe_in_a_zip_is_refused_by_name(tmp_path: Path, kind: int, what: str) -> None:
    info = zipfile.ZipInfo("variables")
    info.create_system = 3
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "upload", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    refuse(ArchiveUnsafe, f"entry 'variables' of the zip is {what}", tmp_path / "upload")


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    info = member("variables.data")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": "99999999999"}
    refuse(ArchiveUnsafe, "sparse", tar_gz(tmp_path / "upload", [(info, b"1\n0\n")]))


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    archive = pack_zip(tmp_path / "upload", {"saved_model.pb": b"graph"})
    damaged = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        damaged[damaged.index(signature) + offset] |= 1
    archive.write_bytes(damaged)
    refuse(ArchiveUnsafe, "without a password", archive)


def test_a_zip_whose_compression_chooses_our_memory_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "upload", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("saved_model.pb", b"graph")
    refuse(ArchiveUnsafe, "use deflate", tmp_path / "upload")
