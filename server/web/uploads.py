"""Multipart registrations, streamed: the archive goes to disk as it arrives, under a limit, never into memory.

The parser is a machine without IO: bytes in, parts out. Writing happens on a thread, a megabyte at a time, so that
a slow disk holds up the upload and not the predictions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from server.store.errors import unwritable
from server.web.errors import BodyTooLarge, RegistrationRefused

__all__ = ["Form", "Upload", "receive_upload"]

_MIB = 2**20
#: Bytes that are collected before a write: fewer, larger trips to the thread.
_WRITE_BYTES = _MIB
#: Longest part besides the archive. A specification with a thousand probe inputs is a few hundred kilobytes.
_MAX_SPEC_BYTES = 4 * _MIB
_MAX_HEADERS_BYTES = 16 * 1024
_MAX_FILENAME_CHARS = 255


@dataclass(frozen=True, slots=True)
class Upload:
    """What a multipart registration held: the archive is at ``path``, ``spec`` is its JSON or None."""

    path: Path
    filename: str
    spec: bytes | None


async def receive_upload(
    chunks: AsyncIterator[bytes],
    *,
    content_type: bytes,
    path: Path,
    max_archive_bytes: int,
    check_spec: Callable[[bytes], object],
) -> Upload:
    """Write the part ``archive`` to ``path`` and return it with the part ``spec``.

    ``check_spec`` is called as soon as the specification is complete: what it raises ends the upload. Whatever is
    raised here, no file is left at ``path``.
    Errors: RegistrationRefused; BodyTooLarge; StoreUnwritable; those of ``chunks`` and ``check_spec``.
    """
    form = Form(content_type, max_archive_bytes=max_archive_bytes)
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
                    await _write(file, form)
            form.close()
            await _write(file, form)
        finally:
            await asyncio.to_thread(file.close)
        if form.filename is None:
            raise RegistrationRefused(
                "the form has no part 'archive': send a SavedModel directory packed as .tar.gz or .zip under that name"
            )
        complete = True
    except OSError as error:
        raise unwritable("the archive", error) from error
    finally:
        if not complete:
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - one system call; a thread would outlive a cancel
    return Upload(path, form.filename, form.spec)


async def _write(file: BinaryIO, form: Form) -> None:
    data, form.pending = form.pending, bytearray()
    if data:
        await asyncio.to_thread(file.write, data)


class Form:
    """A form as it arrives, in pieces of any size. ``pending`` are bytes of the archive that wait to be written.

    Errors, wherever bytes are taken: RegistrationRefused; BodyTooLarge.
    """

    def __init__(self, content_type: bytes, *, max_archive_bytes: int) -> None:
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise RegistrationRefused("Content-Type multipart/form-data names no boundary")
        self._max_archive_bytes = max_archive_bytes
        self.pending = bytearray()
        #: Name of the archive's file; None until its part has begun.
        self.filename: str | None = None
        #: None until the part is complete.
        self.spec: bytes | None = None
        self._n_archive_bytes = 0
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._n_header_bytes = 0
        self._part: str | None = None
        self._spec = bytearray()
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
        if name not in {"archive", "spec"}:
            raise RegistrationRefused(f"the form's part {name[:60]!r} is unknown: send 'archive' and 'spec'")
        if (self.filename if name == "archive" else self.spec) is not None:
            raise RegistrationRefused(f"the form has more than one part {name!r}")
        self._part = name
        if name == "archive":
            filename = options.get(b"filename", b"archive").decode("utf-8", "replace")
            self.filename = filename[:_MAX_FILENAME_CHARS]

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._part == "archive":
            self._n_archive_bytes += end - start
            if self._n_archive_bytes > self._max_archive_bytes:
                raise BodyTooLarge("the archive", limit_bytes=self._max_archive_bytes, setting="max_archive_bytes")
            self.pending += data[start:end]
        else:
            if len(self._spec) + end - start > _MAX_SPEC_BYTES:
                raise BodyTooLarge("the part 'spec'", limit_bytes=_MAX_SPEC_BYTES, setting="fixed")
            self._spec += data[start:end]

    def _on_part_end(self) -> None:
        if self._part == "spec":
            self.spec = bytes(self._spec)

    def _on_end(self) -> None:
        self._ended = True
