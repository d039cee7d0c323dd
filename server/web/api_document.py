"""The OpenAPI document of everything that is served over HTTP, predictions included.

FastAPI knows the routes behind the front, their parameters and what they answer when all goes well. It knows neither
the paths of predictions, which pass by it, nor what is refused: that is one table here, by a route's kind. What FastAPI
says of its own refusals (422) is taken out, as ours are 400 with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from server.spec import ModelSpec
from server.web.api_schemas import BODIES, PREDICTIONS, SCHEMAS, Prediction

__all__ = ["api_document"]

Json = dict[str, Any]

_REFUSALS = {
    400: "Malformed, or a wrong shape, dtype or key; the sentence says where",
    401: "The token is missing or wrong",
    403: "Not allowed to this caller",
    404: "No such model, version or path",
    405: "The path is there, but not for this method; a colon in a name makes the path one of a verb",
    408: "Nothing of the body has come for a while",
    409: "The version is not in a state for that",
    413: "The body, the archive or the number of examples is over a limit, which is named",
    414: "The request's target is over a limit",
    415: "A Content-Encoding other than gzip and deflate",
    429: "The queue is full, or the request waited in it past its time, or its token's limit of rate is reached",
    431: "The request's headers are over a limit",
    500: "An error of the server, or of the model on this input alone",
    501: "Not offered, with what to use instead",
    503: "Not ready, overloaded or shutting down",
    504: "The deadline passed",
    505: "A version of HTTP other than 1.0 and 1.1",
    507: "The store would hold more than it may; the setting is named",
}
_READING = (400, 401, 403, 404, 405, 414, 429, 431, 505)
#: What sending a body can come to.
_BODY = (408, 413, 415, 504)
_WITHOUT_BODY = frozenset({"get", "delete"})
#: By a route's tag: what it can be refused with.
_BY_TAG = {
    "health": (),
    "models": (*_READING, 503),
    "open inference protocol": (*_READING, 503),
    "management": (*_READING, *_BODY, 409, 500, 501, 503, 507),
    "observation": _READING,
    "predictions": (*_READING, *_BODY, 500, 501, 503),
}
#: Those of a tag that are refused in other ways.
_BY_PATH = {"/v2/health/ready": (503,), "/metrics": (401, 403)}
_GUARDED = frozenset({"models", "open inference protocol", "management", "observation", "predictions"})

_MODEL_NAME = {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"}
_VERSION = {"type": "string", "pattern": "^[1-9][0-9]{0,17}$"}
_LABEL = {"type": "string", "pattern": "^[^/:%?#]+$"}
_UPLOAD = {"type": "string", "pattern": "^[A-Za-z0-9_-]{22}$"}
_IN_PATH = {"model": _MODEL_NAME, "version": _VERSION, "label": _LABEL, "upload": _UPLOAD}


def api_document(app: FastAPI) -> Callable[[], Json]:
    """Return what gives the document of an application; it is made at the first call."""
    return cache(partial(_make, app))


def _make(app: FastAPI) -> Json:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components = document.setdefault("components", {})
    schemas = {name: schema for name, schema in components.get("schemas", {}).items() if "ValidationError" not in name}
    spec = ModelSpec.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= spec.pop("$defs", {}) | {"ModelSpec": spec} | SCHEMAS
    components["schemas"] = schemas
    components["responses"] = {f"Refused{code}": _refusal(code) for code in _REFUSALS}
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    paths = document["paths"]
    for prediction in PREDICTIONS:
        paths.setdefault(prediction.path, {})["post"] = _prediction(prediction)
    for path, operations in paths.items():
        for method, operation in operations.items():
            _complete(operation, path, method)
    document["paths"] = dict(sorted(paths.items()))
    return document


def _prediction(prediction: Prediction) -> Json:
    return {
        "tags": ["predictions"],
        "summary": prediction.summary,
        "operationId": prediction.operation_id,
        "parameters": [
            *({"name": name, "in": "path", "required": True} for name in _IN_PATH if f"{{{name}}}" in prediction.path),
            *prediction.headers,
        ],
        "requestBody": prediction.body,
        "responses": {"200": {"description": "The outputs", "content": prediction.answer}} if prediction.answer else {},
    }


def _complete(operation: Json, path: str, method: str) -> None:
    """Say what FastAPI can't know of an operation."""
    (tag,) = operation["tags"]
    responses = operation["responses"]
    responses.pop("422", None)
    for code in _BY_PATH.get(path, _BY_TAG[tag]):
        if code in _BODY and method in _WITHOUT_BODY:
            continue
        responses[str(code)] = {"$ref": f"#/components/responses/Refused{code}"}
    for response in responses.values():
        if "$ref" not in response:
            response["headers"] = {"X-Request-Id": _header("string", "The caller's own, or one that was made")}
    operation["responses"] = dict(sorted(responses.items()))
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            parameter["schema"] = _IN_PATH[parameter["name"]]
    body = BODIES.get((method, path))
    if body is not None:
        operation["requestBody"] = body
    if tag in _GUARDED:
        # Without a token there is nothing to send: callers on this machine are let in.
        operation["security"] = [{"bearer": []}, {"key": []}, {}]


def _refusal(code: int) -> Json:
    headers = {"X-Request-Id": _header("string", "The caller's own, or one that was made")}
    if code in (429, 503):
        headers["Retry-After"] = _header("integer", "Whole seconds after which asking again may help")
    return {
        "description": _REFUSALS[code],
        "headers": headers,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }


def _header(kind: str, description: str) -> Json:
    return {"description": description, "schema": {"type": kind}}
