"""Archives that nobody vouches for: what a SavedModel needs is unpacked, everything else is refused by name."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.build import (
    ArchiveDamaged,
    ArchiveError,
    ArchiveLimits,
    ArchiveTooLarge,
    ArchiveUnsafe,
    NotAnArchive,
    NotASavedModel,
)
from server.build.archive import extract_saved_model

MODEL = {"saved_model.pb": b"graph", "variables/variables.index": b"index", "variables/variables.data": b"\0" * 5000}

Pack = Callable[[Path, dict[str, bytes]], Path]


def tar_gz(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], *, form: int = tarfile.PAX_FORMAT) -> Path:
    """Write a .tar.gz of exactly these headers."""
    with tarfile.open(path, "w:gz", format=form) as tar:
        for info, contents in members:
            info.size = len(contents) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(contents))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    return info


def pack_tar(path: Path, files: dict[str, bytes]) -> Path:
    return tar_gz(path, [(member(name), contents) for name, contents in files.items()])


def pack_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in files.items():
            archive.writestr(name, contents)
    return path


@pytest.fixture(params=[pack_tar, pack_zip], ids=["tar.gz", "zip"])
def pack(request: pytest.FixtureRequest) -> Pack:
    packer: Pack = request.param
    return packer


def refuse(kind: type[ArchiveError], sentence: str, archive: Path, limits: ArchiveLimits | None = None) -> None:
    """Check that the archive is refused, and that nothing was written outside of its directory."""
    destination = archive.parent / "inside" / "unpacked"
    with pytest.raises(kind, match=sentence):
        extract_saved_model(archive, destination, limits=limits)
    around = {entry.name for entry in archive.parent.iterdir()} | {entry.name for entry in destination.parent.iterdir()}
    assert around <= {archive.name, "inside", "unpacked"}
    for directory, directories, files in os.walk(destination):
        for name in (*directories, *files):
            mode = Path(directory, name).lstat().st_mode
            assert stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


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


# What comes twice.


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("again", ["saved_model.pb", "./saved_model.pb", "variables//variables.index"])
def test_a_file_that_comes_twice_is_refused(tmp_path: Path, again: str) -> None:
    members = [(member(name), value) for name, value in (*MODEL.items(), (again, b"other"))]
    refuse(ArchiveUnsafe, "comes twice", tar_gz(tmp_path / "upload", members))
    with zipfile.ZipFile(tmp_path / "zipped", "w") as archive:
        for info, value in members:
            archive.writestr(info.name, value)
    (tmp_path / "upload").unlink()
    destination = tmp_path / "inside" / "again"
    with pytest.raises(ArchiveUnsafe, match="comes twice"):
        extract_saved_model(tmp_path / "zipped", destination)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a")])
def test_a_file_where_a_directory_is_needed_is_refused(tmp_path: Path, pack: Pack, names: tuple[str, str]) -> None:
    refuse(ArchiveUnsafe, "twice|file came before", pack(tmp_path / "upload", dict.fromkeys(names, b"")))


def test_a_directory_that_is_named_again_is_fine(tmp_path: Path, pack: Pack) -> None:
    if pack is pack_tar:
        members = [(member("v", tarfile.DIRTYPE), b""), (member("saved_model.pb"), b"g"), (member("v/x"), b"x")]
        archive = tar_gz(tmp_path / "upload", [*members, (member("v", tarfile.DIRTYPE), b"")])
    else:
        archive = pack_zip(tmp_path / "upload", {"v/": b"", "saved_model.pb": b"g", "v/x": b"x", "./v/": b""})
    assert contents(extract_saved_model(archive, tmp_path / "unpacked")) == {"saved_model.pb": b"g", "v/x": b"x"}


def test_a_file_that_is_already_in_the_destination_is_never_overwritten(tmp_path: Path, pack: Pack) -> None:
    destination = tmp_path / "inside" / "unpacked"
    destination.mkdir(parents=True)
    (destination / "saved_model.pb").symlink_to(tmp_path / "victim")
    with pytest.raises(ArchiveUnsafe, match="was there before"):
        extract_saved_model(pack(tmp_path / "upload", MODEL), destination)
    assert not (tmp_path / "victim").exists()


# What is too much.


def test_more_bytes_than_the_limit_are_refused_before_they_are_written(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path / "upload", {**MODEL, "variables/variables.data": os.urandom(300_000)})
    refuse(ArchiveTooLarge, "over max_unpacked_bytes = 200000", archive, ArchiveLimits(max_unpacked_bytes=200_000))
    assert not (tmp_path / "inside" / "unpacked" / "variables" / "variables.data").exists()


def test_a_bomb_is_stopped_by_its_ratio(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path / "upload", {f"assets/{index}": bytes(2**20) for index in range(20)})
    limits = ArchiveLimits(ratio_free_bytes=4 * 2**20, max_ratio=50)
    refuse(ArchiveTooLarge, "over max_ratio = 50 to 1", archive, limits)
    written = sum(path.stat().st_size for path in (tmp_path / "inside" / "unpacked").rglob("*") if path.is_file())
    assert written <= 5 * 2**20


def test_a_tar_that_claims_more_than_it_has_is_refused_at_its_header(tmp_path: Path) -> None:
    info = member("saved_model.pb")
    info.size = 2**50
    (tmp_path / "upload").write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT)))
    refuse(ArchiveTooLarge, "max_unpacked_bytes", tmp_path / "upload")
    assert not (tmp_path / "inside" / "unpacked" / "saved_model.pb").exists()


def test_a_zip_whose_entries_overlap_is_counted_by_what_comes_out(tmp_path: Path) -> None:
    # One megabyte of zeros that a hundred entries of the table of contents share (D. Fifield, "A better zip bomb").
    packed = zlib.compress(bytes(2**20), wbits=-15)
    checksum = zlib.crc32(bytes(2**20))
    fields = (20, 0, 8, 0, 33, checksum, len(packed), 2**20, 1, 0)
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", *fields) + b"a" + packed
    central = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, *fields, 0, 0, 0, 0, 0) + name.encode() for name in "a" * 100
    )
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 100, 100, len(central), len(local), 0)
    (tmp_path / "upload").write_bytes(local + central + end)
    refuse(ArchiveError, "twice|Overlapped", tmp_path / "upload")


def test_too_many_entries_are_refused(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path / "upload", {f"assets/{index}": b"" for index in range(50)})
    refuse(ArchiveTooLarge, "more than max_entries = 20 entries", archive, ArchiveLimits(max_entries=20))


def test_directories_that_only_paths_name_count_as_entries(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path / "upload", {f"{index}/" * 10 + "file": b"" for index in range(5)})
    refuse(ArchiveTooLarge, "more than max_entries = 20 entries", archive, ArchiveLimits(max_entries=20))


def test_a_path_that_is_too_long_or_deep_is_refused(tmp_path: Path, pack: Pack) -> None:
    refuse(ArchiveTooLarge, "over max_path_bytes = 1024", pack(tmp_path / "upload", {"d/" * 513 + "f": b""}))
    refuse(
        ArchiveTooLarge, "17 directories deep, over max_depth = 16", pack(tmp_path / "upload", {"d/" * 17 + "f": b""})
    )
    refuse(ArchiveTooLarge, "over 255 bytes", pack(tmp_path / "upload", {"f" * 256: b""}))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_huge_tar_header_is_refused_without_being_read(tmp_path: Path, kind: bytes) -> None:
    info = member("header", kind)
    info.size = 60 * 2**20
    (tmp_path / "upload").write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(60 * 2**20)))
    tracemalloc.start()
    try:
        refuse(ArchiveTooLarge, "a header of the tar has 62914560 bytes", tmp_path / "upload")
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_a_huge_zip_table_of_contents_is_refused_without_being_read(tmp_path: Path) -> None:
    size = 100 * 2**20
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFF0, 0xFFF0, size, 4, 0)
    with (tmp_path / "upload").open("wb") as file:
        file.write(b"PK\x03\x04")
        file.truncate(4 + size)
        file.seek(4 + size)
        file.write(end)
    tracemalloc.start()
    try:
        refuse(ArchiveTooLarge, "table of contents has 104857600 bytes", tmp_path / "upload")
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_large_files_are_written_in_bounded_memory(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path / "upload", {**MODEL, "variables/variables.data": bytes(40 * 2**20)})
    tracemalloc.start()
    try:
        extract_saved_model(archive, tmp_path / "unpacked")
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


# What is no archive, or half of one.


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        (b"", "neither a .tar.gz nor a .zip"),
        (b"hello", "neither a .tar.gz nor a .zip"),
        (b"\x1f", "neither a .tar.gz nor a .zip"),
        (b"\x89HDF\r\n\x1a\n", "neither a .tar.gz nor a .zip"),
        (gzip.compress(b"hello"), "no tar"),
        (gzip.compress(b"x" * 5000), "no tar"),
        (gzip.compress(b""), "tar is empty"),
        (gzip.compress(bytes(1024)), "tar is empty"),
    ],
)
def test_what_is_no_archive_is_refused_by_what_it_is(tmp_path: Path, contents: bytes, sentence: str) -> None:
    (tmp_path / "upload").write_bytes(contents)
    refuse(NotAnArchive, sentence, tmp_path / "upload")


def test_an_archive_that_is_cut_short_anywhere_is_refused_in_order(tmp_path: Path, pack: Pack) -> None:
    whole = pack(tmp_path / "whole", {**MODEL, "variables/variables.data": os.urandom(3000)}).read_bytes()
    (tmp_path / "whole").unlink()
    for length in range(5, len(whole) - 1, 97):
        (tmp_path / "upload").write_bytes(whole[:length])
        with pytest.raises((ArchiveDamaged, NotAnArchive)):
            extract_saved_model(tmp_path / "upload", tmp_path / f"unpacked-{length}")


@pytest.mark.parametrize("pack_it", [pack_tar, pack_zip])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_give_an_error_of_ours_or_files_inside(
    tmp_path_factory: pytest.TempPathFactory, pack_it: Pack, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("damaged")
    damaged = bytearray(pack_it(directory / "upload", MODEL).read_bytes())
    if pack_it is pack_tar:
        # Below the checksum of gzip, which would catch it all.
        damaged = bytearray(gzip.decompress(damaged))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    (directory / "upload").write_bytes(gzip.compress(bytes(damaged)) if pack_it is pack_tar else damaged)
    with suppress(ArchiveError):
        extract_saved_model(directory / "upload", directory / "unpacked")
    assert {entry.name for entry in directory.iterdir()} <= {"upload", "unpacked"}


# What holds no SavedModel.


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"weights.h5": b""}, "no saved_model.pb at its top or one directory down .it has 'weights.h5'"),
        ({"a/b/saved_model.pb": b""}, "it has 'a'"),
        ({"saved_model.pb/x": b""}, "no saved_model.pb"),
        ({"a/saved_model.pb": b"", "b/saved_model.pb": b""}, "holds 2 SavedModels .'a', 'b'.: pack one"),
    ],
)
def test_an_archive_without_exactly_one_saved_model_says_what_it_has(
    tmp_path: Path, pack: Pack, files: dict[str, bytes], sentence: str
) -> None:
    refuse(NotASavedModel, sentence, pack(tmp_path / "upload", files))


def test_an_empty_zip_says_that_it_has_nothing(tmp_path: Path) -> None:
    refuse(NotASavedModel, "it has nothing", pack_zip(tmp_path / "upload", {}))
