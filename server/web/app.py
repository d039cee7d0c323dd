"""Puts the web layer together: the application for management, and the front for predictions before it."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from server.errors import RowwiseError
from server.metrics import Metrics
from server.settings import Settings
from server.web.auth import Gate
from server.web.errors import MethodNotAllowed, PathNotFound, WebError
from server.web.front import REQUEST_ID, Front
from server.web.health import health_router
from server.web.interfaces import Catalog
from server.web.management import management_router
from server.web.model_status import model_status_router
from server.web.predict import Predictor
from server.web.status import Reply, error_body, error_reply, internal_error_reply

__all__ = ["create_app"]


def create_app(catalog: Catalog, settings: Settings, metrics: Metrics) -> Front:
    """Return the ASGI callable that serves ``catalog``."""
    gate = Gate(None if settings.token is None else settings.token.get_secret_value())
    predictor = Predictor(catalog, metrics, max_instances=settings.max_instances)
    app = _application(catalog, settings, metrics, gate)
    return Front(app, predictor, settings, metrics, gate)


def _application(catalog: Catalog, settings: Settings, metrics: Metrics, gate: Gate) -> FastAPI:
    # No interactive documentation: its pages load scripts from other hosts. /openapi.json is there.
    app = FastAPI(title="Rowwise", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(health_router(catalog, metrics))
    app.include_router(management_router(catalog, settings, metrics, gate))
    app.include_router(model_status_router(catalog, gate if settings.protect_predict else None))

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
            allow = [method.strip() for method in (error.headers or {}).get("Allow", "").split(",") if method.strip()]
            return _response(error_reply(MethodNotAllowed(request.method, path, allow=allow)))
        return _response(Reply(error.status_code, error_body(str(error.detail))))

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        return _response(internal_error_reply(request.scope[REQUEST_ID]))

    return app


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
