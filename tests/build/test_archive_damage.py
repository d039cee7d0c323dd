"""Archives that hold something twice, too much, half of it, or no SavedModel: each is refused in order."""

from __future__ import annotations

import gzip
import os
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
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
from tests.build.doubles.archives import MODEL, Pack, contents, member, pack_tar, pack_zip, refuse, tar_gz

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


@pytest.mark.parametrize(
    "names",
    [
        ("saved_model.pb", "Saved_Model.pb"),
        ("assets/x", "ASSETS/y"),
        ("assets/caf\N{LATIN SMALL LETTER E WITH ACUTE}", "assets/cafe\N{COMBINING ACUTE ACCENT}"),
        ("assets/\N{LATIN SMALL LIGATURE FI}le", "assets/file"),
        ("assets/stra\N{LATIN SMALL LETTER SHARP S}e", "assets/STRASSE"),
    ],
)
def test_names_that_some_systems_take_for_the_same_are_refused(
    tmp_path: Path, pack: Pack, names: tuple[str, str]
) -> None:
    refuse(ArchiveUnsafe, "in case or form of characters alone", pack(tmp_path / "upload", dict.fromkeys(names, b"")))


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a", "a/"), ("a/", "a")])
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
    ids=[
        "empty",
        "text",
        "one byte",
        "HDF5",
        "gzip of a text",
        "gzip of a long text",
        "gzip of nothing",
        "gzip of zeros",
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
