"""Multipart registrations, streamed: archive or weights go to disk as they arrive, under a limit, never into memory.

The parser is a machine without IO: bytes in, parts out. Writing happens on a thread, a megabyte at a time, so that
a slow disk holds up the upload and not the predictions.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from server.store.errors import unwritable
from server.web.digests import read_digest
from server.web.errors import BodyTooLarge, RegistrationRefused, SourceNotEnabled
from server.web.source_text import MAX_SOURCE_BYTES

__all__ = ["Form", "Upload", "receive_upload"]

_MIB = 2**20
#: Bytes that are collected before a write: fewer, larger trips to the thread.
_WRITE_BYTES = _MIB
#: Longest parts besides the file. A specification with a thousand probe inputs is a few hundred kilobytes.
_MAX_TEXT_BYTES = {"spec": 4 * _MIB, "source": MAX_SOURCE_BYTES, "function": 1_000}
_ARCHIVE, _WEIGHTS = "archive", "weights"
#: What only source registrations have.
_OF_SOURCE = frozenset({"source", "function", _WEIGHTS})
_MAX_HEADERS_BYTES = 16 * 1024
_MAX_FILENAME_CHARS = 255


@dataclass(frozen=True, slots=True)
class Upload:
    """What a multipart registration held: an archive at ``path``, or ``source`` with its weights there, if it has any.

    ``spec`` is its JSON or None; ``filename`` the caller's name of the file.
    """

    path: Path | None
    filename: str
    spec: bytes | None
    source: bytes | None = None
    function: bytes | None = None
    #: Of the file, in hexadecimal, empty without one; and what its part's ``Repr-Digest`` says it is.
    sha256: str = ""
    expected_sha256: str | None = None


async def receive_upload(
    chunks: AsyncIterator[bytes],
    *,
    content_type: bytes,
    path: Path,
    max_archive_bytes: int,
    check_spec: Callable[[bytes], object],
    allow_source: bool = False,
) -> Upload:
    """Write the part ``archive`` or ``weights`` to ``path`` and return it with the other parts.

    ``check_spec`` is called as soon as the specification is complete: what it raises ends the upload. Whatever is
    raised here, no file is left at ``path``.
    Errors: RegistrationRefused; BodyTooLarge; SourceNotEnabled; StoreUnwritable; those of ``chunks`` and
        ``check_spec``.
    """
    form = Form(content_type, max_archive_bytes=max_archive_bytes, allow_source=allow_source)
    file_hash = hashlib.sha256()
    spec_checked = False
    complete = False
    try:
        file = await asyncio.to_thread(path.open, "xb")
        try:
            async for chunk in chunks:
                form.feed(chunk)
                if form.spec is not None and not spec_checked:
                    check_spec(form.spec)
                    spec_checked = True
                if len(form.pending) >= _WRITE_BYTES:
                    await _write(file, form, file_hash)
            form.close()
            await _write(file, form, file_hash)
        finally:
            await asyncio.to_thread(file.close)
        form.check_parts()
        complete = form.file_part is not None
    except OSError as error:
        raise unwritable("the archive", error) from error
    finally:
        if not complete:
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - one system call; a thread would outlive a cancel
    return Upload(
        path if complete else None,
        form.filename,
        form.spec,
        source=form.text("source"),
        function=form.text("function"),
        sha256=file_hash.hexdigest() if complete else "",
        expected_sha256=form.expected_sha256,
    )


async def _write(file: BinaryIO, form: Form, file_hash: hashlib._Hash) -> None:
    data, form.pending = form.pending, bytearray()
    if data:
        await asyncio.to_thread(_write_hashed, file, data, file_hash)


def _write_hashed(file: BinaryIO, data: bytearray, file_hash: hashlib._Hash) -> None:
    file_hash.update(data)
    file.write(data)


class Form:
    """A form as it arrives, in pieces of any size. ``pending`` are bytes of its file that wait to be written.

    Errors, wherever bytes are taken: RegistrationRefused; BodyTooLarge; SourceNotEnabled.
    """

    def __init__(self, content_type: bytes, *, max_archive_bytes: int, allow_source: bool = False) -> None:
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise RegistrationRefused("Content-Type multipart/form-data names no boundary")
        self._max_archive_bytes = max_archive_bytes
        self._allow_source = allow_source
        self.pending = bytearray()
        #: "archive" or "weights", once that part has begun, and the name that its file has with the caller.
        self.file_part: str | None = None
        self.filename = ""
        #: What the sender says that its SHA-256 is.
        self.expected_sha256: str | None = None
        self._n_file_bytes = 0
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._n_header_bytes = 0
        self._part: str | None = None
        #: Parts that are texts; those in ``_whole`` are complete.
        self._texts: dict[str, bytearray] = {}
        self._whole: set[str] = set()
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_part_end": self._on_part_end,
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise RegistrationRefused(f"the multipart boundary can't be used: {error}") from None

    def feed(self, chunk: bytes) -> None:
        """Take the next piece."""
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise RegistrationRefused(f"the body is not multipart/form-data: {error}") from None

    def text(self, part: str) -> bytes | None:
        """Return a part that is a text, once it is complete."""
        return bytes(self._texts[part]) if part in self._whole else None

    @property
    def spec(self) -> bytes | None:
        """The specification's JSON, once it is complete."""
        return self.text("spec")

    def check_parts(self) -> None:
        """See that there is something to register."""
        if self.text("source") is None and self.file_part != _ARCHIVE:
            or_source = ", or 'source'" if self._allow_source else ""
            raise RegistrationRefused(
                f"the form has no part 'archive'{or_source}: send a SavedModel directory packed as .tar.gz or .zip "
                "under that name"
            )
        if self.text("source") is not None and self.file_part == _ARCHIVE:
            raise RegistrationRefused("send either 'source' or 'archive', not both")

    def close(self) -> None:
        """Say that the body is over."""
        if not self._ended:
            raise RegistrationRefused("the body ends before its last multipart boundary: the upload was cut short")

    def _on_part_begin(self) -> None:
        self._headers = {}
        self._n_header_bytes = 0
        self._part = None

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._header_value += data[start:end]

    def _count_header(self, n_bytes: int) -> None:
        self._n_header_bytes += n_bytes
        if self._n_header_bytes > _MAX_HEADERS_BYTES:
            raise RegistrationRefused(f"the headers of a part are over {_MAX_HEADERS_BYTES} bytes")

    def _on_header_end(self) -> None:
        self._headers[bytes(self._header_name).lower()] = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name not in {_ARCHIVE, _WEIGHTS, *_MAX_TEXT_BYTES}:
            raise RegistrationRefused(f"the form's part {name[:60]!r} is unknown: send 'archive' and 'spec'")
        if name in _OF_SOURCE and not self._allow_source:
            raise SourceNotEnabled
        if name in self._texts or name == self.file_part:
            raise RegistrationRefused(f"the form has more than one part {name!r}")
        self._part = name
        if name in _MAX_TEXT_BYTES:
            self._texts[name] = bytearray()
            return
        if self.file_part is not None:
            raise RegistrationRefused("send either 'archive' or 'weights', not both")
        self.file_part = name
        self.expected_sha256 = read_digest(self._headers.get(b"repr-digest"))
        self.filename = options.get(b"filename", name.encode()).decode("utf-8", "replace")[:_MAX_FILENAME_CHARS]

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        assert part is not None, "headers came first"
        if part == self.file_part:
            self._n_file_bytes += end - start
            if self._n_file_bytes > self._max_archive_bytes:
                raise BodyTooLarge(f"the {part}", limit_bytes=self._max_archive_bytes, setting="max_archive_bytes")
            self.pending += data[start:end]
            return
        text, limit_bytes = self._texts[part], _MAX_TEXT_BYTES[part]
        if len(text) + end - start > limit_bytes:
            raise BodyTooLarge(f"the part {part!r}", limit_bytes=limit_bytes, setting="fixed")
        text += data[start:end]

    def _on_part_end(self) -> None:
        if self._part in self._texts:
            self._whole.add(self._part)

    def _on_end(self) -> None:
        self._ended = True
