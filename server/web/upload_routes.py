"""Uploads in pieces, as tus clients send them: begin, ask how far it is, go on, give up.

Whoever begins one may say in the body, which tus leaves empty, what it will be registered as. Then what would refuse
that registration refuses the upload, before gigabytes of it are sent.

Source: tus resumable upload protocol 1.0.0, with its extensions creation and termination. It is what clients and
proxies speak; the IETF's draft of the same still changes its headers from one version to the next.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse

from server.rights import Grant
from server.settings import Settings
from server.web.auditing import note_model
from server.web.auth import allow
from server.web.bodies import body_chunks
from server.web.digests import read_digest
from server.web.errors import BadHeader
from server.web.front import GRANT
from server.web.interfaces import Catalog
from server.web.management_body import read_small_body
from server.web.partial_uploads import PartialUpload, PartialUploads
from server.web.registering import STALL_S
from server.web.registration import read_announcement
from server.web.scopes import MANAGE

__all__ = ["uploads_router"]

_TUS = {"Tus-Resumable": "1.0.0", "Cache-Control": "no-store"}
_PIECE = "application/offset+octet-stream"
_MAX_FILENAME_CHARS = 255

Bytes = Annotated[int, Header(ge=0, le=2**53)]


def uploads_router(catalog: Catalog, settings: Callable[[], Settings], uploads: PartialUploads) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1/uploads", tags=["management"])

    @router.post("", status_code=201, summary="Begin an upload in pieces (tus)")
    async def begin(
        request: Request,
        upload_length: Bytes,
        upload_metadata: Annotated[str, Header()] = "",
        repr_digest: Annotated[str | None, Header()] = None,
    ) -> Response:
        filename = _filename(upload_metadata)
        sha256 = read_digest(None if repr_digest is None else repr_digest.encode("latin-1"))
        grant: Grant = request.scope[GRANT]
        uploads.check_room(upload_length, owner=grant.name)
        # Another body is a tus client's that sends its first piece along: it is told that nothing of it was taken.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
            model = read_announcement(await read_small_body(request, settings()))
            note_model(request.scope, model)
            allow(grant, model, MANAGE)
            await catalog.check_new(model, n_bytes=upload_length)
        upload = uploads.begin(upload_length, filename=filename, sha256=sha256, owner=grant.name)
        place = f"{request.scope.get('root_path', '')}/v1/uploads/{upload.id}"
        return JSONResponse({"upload": upload.id}, status_code=201, headers={**_headers(upload), "Location": place})

    @router.get("/{upload}", status_code=204, summary="How far an upload is")
    async def offset(upload: str) -> Response:
        return Response(status_code=204, headers=_headers(uploads.look_up(upload)))

    @router.patch("/{upload}", status_code=204, summary="Send the next piece of an upload")
    async def append(upload: str, request: Request, upload_offset: Bytes) -> Response:
        if request.headers.get("content-type") != _PIECE:
            raise BadHeader(f"a piece of an upload is sent as Content-Type {_PIECE}")
        chunks = body_chunks(request.receive, stall_s=STALL_S)
        return Response(status_code=204, headers=_headers(await uploads.append(upload, upload_offset, chunks)))

    @router.delete("/{upload}", status_code=204, summary="Give an upload up")
    async def remove(upload: str) -> Response:
        uploads.remove(upload)
        return Response(status_code=204, headers=_TUS)

    return router


def _headers(upload: PartialUpload) -> dict[str, str]:
    return {**_TUS, "Upload-Offset": str(upload.offset), "Upload-Length": str(upload.length)}


def _filename(metadata: str) -> str:
    """Return the file's name out of ``Upload-Metadata: filename d29ybGQ=,...``. Errors: BadHeader."""
    for pair in metadata.split(","):
        name, _, value = pair.strip().partition(" ")
        if name == "filename":
            try:
                return base64.b64decode(value, validate=True).decode("utf-8", "replace")[:_MAX_FILENAME_CHARS]
            except binascii.Error:
                raise BadHeader("Upload-Metadata: the value of 'filename' is not in base64") from None
    return "archive"
