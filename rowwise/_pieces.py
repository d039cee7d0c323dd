"""A large archive goes up in pieces, so that a broken connection costs a piece, and not all that was sent before.

Whatever became of a piece, the server is asked how much is there, and what follows is sent: it keeps what came of one,
over a restart too. Source: tus resumable upload protocol 1.0.0.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rowwise._calls import JSON, Calls
from rowwise._http import answer_json
from rowwise._steps import Pause, Send, Steps, Work
from rowwise.errors import BadAnswer, ConnectionFailed, RowwiseClientError, ServerRefused, TimedOut
from rowwise.progress import RegistrationView
from rowwise.values import encode_json
from rowwise.version_status import Stage

__all__ = ["PIECES_ABOVE_BYTES", "forget_upload", "upload_in_pieces"]

#: Archives up to this size go up in one request, which is seconds of a slow line.
PIECES_ABOVE_BYTES = 16 * 2**20
#: What a broken connection costs at most; each piece costs the server one sync of its disk.
_PIECE_BYTES = 8 * 2**20
#: Seconds in which a piece must move, and that the server may take to write it.
_PIECE_TIMEOUT_S = 120.0
#: Failures in a row, without a byte that came through: 50 seconds, in which a server can be restarted.
_MOST_FAILURES = 10
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
#: Answers after which the same piece may do: a body that came too slowly, a piece that the server is still busy with,
#: and those of servers and proxies that can't just now.
_PASSING = frozenset({408, 409, 429, 502, 503, 504})
_TUS = {"Tus-Resumable": "1.0.0"}


def upload_in_pieces(
    calls: Calls, archive: Path, *, model: str, spec: Mapping[str, Any], digest: str, view: RegistrationView
) -> Steps[str]:
    """Upload a file, and return the server's name of the upload, to be registered as ``model``.

    The server is told first what it is to be, so that it refuses before anything is sent what it would refuse then.
    Errors: ServerRefused, and what was last in the way when nothing came through any more.
    """
    length = archive.stat().st_size
    name = base64.b64encode(archive.name.encode()).decode()
    begin = Send(
        method="POST",
        path="/v1/uploads",
        content=encode_json({"model": model, "spec": spec}),
        headers={
            **_TUS,
            **JSON,
            "Upload-Length": str(length),
            "Upload-Metadata": f"filename {name}",
            "Repr-Digest": digest,
        },
        # One that was begun and is not known of goes by itself.
        repeats=True,
    )
    begun = answer_json(begin, (yield from calls.send(begin)))
    upload = begun.get("upload") if isinstance(begun, dict) else None
    if not isinstance(upload, str) or not upload.replace("-", "").replace("_", "").isalnum():
        raise BadAnswer(f"the server began an upload but named none: {str(begun)[:200]}")
    try:
        yield from _send_pieces(calls, archive, length, upload, view)
    except RowwiseClientError:
        yield from forget_upload(calls, upload)
        raise
    return upload


def forget_upload(calls: Calls, upload: str) -> Steps[None]:
    """Tell the server that nobody goes on with an upload; if it can't be told, it finds out by itself."""
    with suppress(RowwiseClientError):
        yield Send(method="DELETE", path=_path(upload), headers=_TUS, timeout_s=calls.timeout_s)


def _send_pieces(calls: Calls, archive: Path, length: int, upload: str, view: RegistrationView) -> Steps[None]:
    offset, n_failed, is_known = 0, 0, True
    while offset < length or not is_known:
        view.show(Stage(name="upload", done=offset // 1024, total=max(1, length // 1024)))
        try:
            if is_known:
                piece = yield Work(partial(_read, archive, offset))
                request = _piece(upload, offset, piece)
            else:
                request = Send(method="HEAD", path=_path(upload), headers=_TUS, timeout_s=calls.timeout_s)
            there = _offset(request, (yield request), most=length)
        except (ConnectionFailed, TimedOut, ServerRefused) as error:
            if isinstance(error, ServerRefused) and error.status not in _PASSING:
                raise
            n_failed += 1
            if n_failed > _MOST_FAILURES:
                raise
            yield Pause(max(_pause_s(n_failed), getattr(error, "retry_after_s", None) or 0.0))
            is_known = False
            continue
        if there > offset:
            n_failed = 0
        offset, is_known = there, True
    view.show(Stage(name="upload", done=max(1, length // 1024), total=max(1, length // 1024)))


def _piece(upload: str, offset: int, piece: bytes) -> Send:
    return Send(
        method="PATCH",
        path=_path(upload),
        content=piece,
        headers={**_TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)},
        timeout_s=_PIECE_TIMEOUT_S,
        is_long=True,
    )


def _read(archive: Path, offset: int) -> bytes:
    with archive.open("rb") as file:
        file.seek(offset)
        return file.read(_PIECE_BYTES)


def _offset(request: Send, answer: Any, *, most: int) -> int:
    text = answer.headers.get("Upload-Offset", "")
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise BadAnswer(f"{request.method} {request.path}: expected an Upload-Offset up to {most}, got {text[:40]!r}")
    return int(text)


def _pause_s(n_failed: int) -> float:
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * float(2 ** (n_failed - 1)))


def _path(upload: str) -> str:
    return f"/v1/uploads/{upload}"
