"""The application behind the front: management, status, health and metrics, and their errors as answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from server.errors import RowwiseError
from server.metrics import Metrics
from server.rights import AuditRecord
from server.settings import Settings
from server.web.api_document import api_document
from server.web.auditing import Auditing, ask
from server.web.auth import Gate, allow
from server.web.console import Live, console_router, pages_router
from server.web.content_encoding import Inflating
from server.web.debug import debug_router
from server.web.errors import MethodNotAllowed, PathNotFound, WebError
from server.web.front import GRANT, REQUEST_ID
from server.web.health import Health
from server.web.health_routes import health_router
from server.web.interfaces import Batches, Catalog, ServerStatus, WaitingRows
from server.web.management import management_router
from server.web.model_status import model_status_router
from server.web.oip_routes import oip_model_router, oip_repository_router
from server.web.partial_uploads import PartialUploads
from server.web.scopes import MANAGE, route_rule, unruled
from server.web.server_status import server_status_router
from server.web.status import Reply, error_body, error_reply, internal_error_reply, options_reply
from server.web.upload_routes import uploads_router

__all__ = ["create_application"]


def create_application(
    catalog: Catalog,
    settings: Callable[[], Settings],
    metrics: Metrics,
    gate: Gate,
    health: Health,
    uploads: PartialUploads,
    batches: Batches | None,
    status: ServerStatus,
    *,
    waiting_rows: WaitingRows = tuple,
) -> FastAPI:
    """Return the application. Nothing that is hot passes through it. ``settings`` gives those in force.

    Every route is behind ``gate``, by its rule in ``scopes``. Errors: ValueError for a route that has none.
    """
    # No interactive documentation: its pages load scripts from other hosts. /openapi.json is there.
    app = FastAPI(
        title="Rowwise", docs_url=None, redoc_url=None, redirect_slashes=False, dependencies=[Depends(_guard(gate))]
    )
    app.add_middleware(Inflating)
    app.add_middleware(Auditing, audit=gate.audit)
    app.include_router(health_router(health, metrics))
    app.include_router(management_router(catalog, settings, metrics, uploads))
    app.include_router(uploads_router(catalog, settings, uploads))
    if batches is not None:
        app.include_router(debug_router(batches))
        if settings().console:
            live = Live(catalog, metrics, batches, waiting_rows)
            gate.on_change.append(live.end)
            app.include_router(pages_router())
            app.include_router(console_router(catalog, live))
    app.include_router(server_status_router(status))
    app.include_router(model_status_router(catalog))
    app.include_router(oip_model_router(catalog))
    app.include_router(oip_repository_router(catalog, settings))
    app.openapi = api_document(app)  # type: ignore[method-assign]
    check_rules(app)

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


def check_rules(app: FastAPI) -> None:
    """Errors: ValueError for a route without a rule: it would be open to everybody."""
    asked: list[tuple[str, str]] = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        # The guard looks a rule up by the path that the route itself knows.
        if not isinstance(route, Route) or route.path != context.path:
            raise ValueError(f"{context.path}: a route that no rule can be found for")
        asked += [(method, route.path) for method in route.methods or () if method != "HEAD"]
    missing = unruled(asked)
    if missing:
        raise ValueError(f"routes without a rule in server.web.scopes: {missing}")


def _guard(gate: Gate) -> Callable[[Request], Awaitable[None]]:
    """Return what every route depends on: it lets a request pass by its route's rule, before anything is read of it."""

    async def guard(request: Request) -> None:
        scope = request.scope
        rule = route_rule(request.method, scope["route"].path)
        what = f"{request.method} {scope['route'].path}"
        client, model = scope.get("client"), request.path_params.get("model")
        host = None if client is None else client[0]
        try:
            grant = gate.admit(rule, scope["headers"], client, is_post=request.method == "POST")
            if model is not None:
                allow(grant, model, rule)
        except WebError as error:
            gate.refused(error, what=what, host=host, request_id=scope[REQUEST_ID], model=model)
            raise
        scope[GRANT] = grant
        if rule is MANAGE:
            record = AuditRecord(
                who=grant.name,
                what=what,
                request_id=scope[REQUEST_ID],
                host=host,
                model=model,
                version=request.path_params.get("version"),
            )
            await ask(gate.audit, record, scope)

    return guard


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
    return Response(bytes(reply.body), status_code=reply.status, headers=headers)


def _validation_sentence(faults: Sequence[dict[str, object]]) -> str:
    parts = []
    for fault in faults:
        place = fault.get("loc", ())
        where = ".".join(map(str, place)) if isinstance(place, tuple | list) else str(place)
        parts.append(f"{where}: {fault.get('msg')}")
    return "; ".join(parts)
