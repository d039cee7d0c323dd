"""The page itself. It is open to everybody, like a door: what is behind it asks for rights."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from server.web.console.assets import Assets
from server.web.errors import PathNotFound

__all__ = ["HEADERS", "pages_router"]

#: What a page of ours may do: load what this server has, and talk to it. Nothing inline, nothing from elsewhere, in
#: nobody's frame; data: images are for the charts' library, which looks whether it can show some. Names and reasons are
#: text of strangers: were one ever taken for HTML, it still would not run.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def pages_router(assets: Assets | None = None) -> APIRouter:
    """Return the routes of the page and its files. ``assets`` None: those that are installed."""
    files = Assets.installed() if assets is None else assets
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page(request: Request) -> Response:
        return await _answer(files, "index.html", request)

    @router.get("/console/{file}")
    async def one_file(file: str, request: Request) -> Response:
        return await _answer(files, file, request)

    return router


async def _answer(files: Assets, name: str, request: Request) -> Response:
    asset = files.find(name)
    if asset is None:
        raise PathNotFound(f"the console has no file {name[:80]!r}")
    if not asset.etag:
        await run_in_threadpool(asset.prepare)
    headers = {**HEADERS, "Cache-Control": asset.cache_control, "ETag": asset.etag}
    known = request.headers.get("if-none-match", "")
    if asset.etag in (tag.strip() for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.gzipped, media_type=asset.media_type, headers=headers)
    return Response(await run_in_threadpool(asset.plain), media_type=asset.media_type, headers=headers)


def _takes_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
