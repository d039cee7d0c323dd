"""The application behind the front: management, status, health and metrics, and their errors as answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from server.errors import RowwiseError
from server.metrics import Metrics
from server.settings import Settings
from server.web.api_document import api_document
from server.web.auth import Gate
from server.web.content_encoding import Inflating
from server.web.debug import debug_router
from server.web.errors import MethodNotAllowed, PathNotFound, WebError
from server.web.front import REQUEST_ID
from server.web.health import Health
from server.web.health_routes import health_router
from server.web.interfaces import Batches, Catalog, ServerStatus
from server.web.management import management_router
from server.web.model_status import model_status_router
from server.web.oip_routes import oip_model_router, oip_repository_router
from server.web.server_status import server_status_router
from server.web.status import Reply, error_body, error_reply, internal_error_reply, options_reply

__all__ = ["create_application"]


def create_application(
    catalog: Catalog,
    settings: Callable[[], Settings],
    metrics: Metrics,
    gate: Gate,
    health: Health,
    batches: Batches | None = None,
    status: ServerStatus = dict,
) -> FastAPI:
    """Return the application. Nothing that is hot passes through it. ``settings`` gives those in force."""
    # No interactive documentation: its pages load scripts from other hosts. /openapi.json is there.
    app = FastAPI(title="Rowwise", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(Inflating)
    app.include_router(health_router(health, metrics))
    app.include_router(management_router(catalog, settings, metrics, gate))
    if batches is not None:
        app.include_router(debug_router(batches, gate))
    app.include_router(server_status_router(status, gate))
    asking = gate if settings().protect_predict else None
    app.include_router(model_status_router(catalog, asking))
    app.include_router(oip_model_router(catalog, asking))
    app.include_router(oip_repository_router(catalog, settings, gate))
    app.openapi = api_document(app)  # type: ignore[method-assign]

    @app.exception_handler(RowwiseError)
    async def refused(_: Request, error: RowwiseError) -> Response:
        return _response(error_reply(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        return _response(error_reply(WebError(_validation_sentence(error.errors()))))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        path = request.scope["path"]
        if error.status_code == 404:
            return _response(error_reply(PathNotFound(f"nothing is served at {path!r}")))
        if error.status_code == 405:
            allow = _methods(request)
            if request.method == "OPTIONS":
                return _response(options_reply(allow))
            return _response(error_reply(MethodNotAllowed(request.method, path, allow=allow)))
        return _response(Reply(error.status_code, error_body(str(error.detail))))

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        return _response(internal_error_reply(request.scope[REQUEST_ID]))

    return app


def _methods(request: Request) -> list[str]:
    """Return the methods that a request's path takes: a router names those of the first route alone."""
    return [
        method
        for method in ("DELETE", "GET", "POST", "PUT")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in request.app.router.routes
        )
    ]


def _response(reply: Reply) -> Response:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers}
    return Response(reply.body, status_code=reply.status, headers=headers)


def _validation_sentence(faults: Sequence[dict[str, object]]) -> str:
    parts = []
    for fault in faults:
        place = fault.get("loc", ())
        where = ".".join(map(str, place)) if isinstance(place, tuple | list) else str(place)
        parts.append(f"{where}: {fault.get('msg')}")
    return "; ".join(parts)
