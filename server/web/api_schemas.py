"""What requests and answers look like, as JSON Schema, for the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from server.protocol.oip_datatypes import DATATYPES

__all__ = ["BODIES", "PREDICTIONS", "SCHEMAS", "Prediction"]

Json = dict[str, Any]


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(*required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _list(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


def _json_body(schema: Json, *, required: bool = True) -> Json:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


_TEXT: Json = {"type": "string"}
_ANY: Json = {}
_OCTETS: Json = {"type": "string", "format": "binary"}
_SIZES = _list({"type": "integer", "minimum": 0})
_PARAMETERS: Json = {"type": "object"}

_FORMS: Json = _object(
    instances=_list(_ANY, description="Row form: examples, of one input bare, else objects of all inputs", minItems=1),
    inputs={"description": "Column form: each input with all of its rows; of one input without its name"},
    signature_name=_TEXT,
)
_FORMS["oneOf"] = [{"required": ["instances"]}, {"required": ["inputs"]}]
_CHOOSING = {"output": _TEXT, "wrt": {"oneOf": [_TEXT, _list(_TEXT)]}}

SCHEMAS: Json = {
    "Error": _object("error", error={**_TEXT, "description": "What is wrong, where, and what to do"}),
    "Predict": _FORMS,
    "Differentiate": {**_FORMS, "properties": {**_FORMS["properties"], **_CHOOSING}},
    "Predicted": {
        "oneOf": [_object("predictions", predictions=_list(_ANY)), _object("outputs", outputs=_ANY)],
    },
    "InputTensor": _object(
        *("name", "shape", "datatype"),
        name=_TEXT,
        shape=_SIZES,
        datatype={**_TEXT, "enum": sorted(DATATYPES.values())},
        data={"type": "array", "description": "Nested or flat; not where values are binary"},
        parameters=_object(binary_data_size={"type": "integer", "minimum": 0}),
    ),
    "OutputTensor": _object(
        *("name", "shape", "datatype"),
        name=_TEXT,
        shape=_SIZES,
        datatype={**_TEXT, "enum": sorted(DATATYPES.values())},
        data=_list(_ANY),
        parameters=_PARAMETERS,
    ),
    "Infer": _object(
        "inputs",
        id=_TEXT,
        inputs=_list(_ref("InputTensor"), minItems=1),
        outputs=_list(_object("name", name=_TEXT, parameters=_object(binary_data={"type": "boolean"}))),
        parameters=_object(
            binary_data_output={"type": "boolean"},
            priority={"type": "integer", "minimum": 0, "maximum": 255},
            timeout={"type": "integer", "minimum": 0, "maximum": 86_400_000_000, "description": "Microseconds"},
        ),
    ),
    "Inferred": _object(
        *("model_name", "model_version", "outputs"),
        id=_TEXT,
        model_name=_TEXT,
        model_version=_TEXT,
        outputs=_list(_ref("OutputTensor")),
    ),
    "Import": {
        **_object("import_path", import_path={**_TEXT, "description": "MODULE:FUNCTION"}, spec=_ref("ModelSpec")),
        "description": "Options may stand under 'spec', or beside 'import_path'",
    },
    "UploadInPieces": {
        **_object("upload", upload={**_TEXT, "description": "Where the upload is"}, spec=_ref("ModelSpec")),
        "description": "Options may stand under 'spec', or beside 'upload'",
    },
    "Announcement": {
        **_object("model", model={**_TEXT, "description": "Its name"}, spec=_ref("ModelSpec")),
        "description": "What an upload is to be registered as: what would refuse that refuses it before it is sent",
    },
    "SourceText": {
        **_object(
            "source",
            source={
                **_TEXT,
                "description": "A Python module with a function of one example; numpy arrays as weights[name]",
            },
            function={**_TEXT, "description": "Its name: predict if it is left out"},
            weights={**_TEXT, "format": "byte", "description": "An .npz of arrays, in base64"},
            spec=_ref("ModelSpec"),
        ),
        "description": "Where the operator allows it. Options may stand under 'spec', or beside 'source'",
    },
    "Upload": {
        **_object(archive=_OCTETS, source=_TEXT, function=_TEXT, weights=_OCTETS, spec=_ref("ModelSpec")),
        "oneOf": [{"required": ["archive"]}, {"required": ["source"]}],
    },
}

#: Bodies that the application behind the front reads, by method and path.
BODIES: dict[tuple[str, str], Json] = {
    ("put", "/v1/models/{model}"): {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": [_ref("Import"), _ref("UploadInPieces"), _ref("SourceText")]}},
            "multipart/form-data": {
                "schema": _ref("Upload"),
                "encoding": {"spec": {"contentType": "application/json"}},
            },
        },
    },
    ("post", "/v1/uploads"): _json_body(_ref("Announcement"), required=False),
    ("patch", "/v1/uploads/{upload}"): {
        "required": True,
        "content": {"application/offset+octet-stream": {"schema": _OCTETS}},
    },
    ("post", "/v1/models/{model}/versions/{version}:shadow"): _json_body(
        _object("share", share={"type": "number", "minimum": 0, "maximum": 1})
    ),
    ("put", "/v1/models/{model}/labels/{label}"): _json_body(
        _object("version", version={"type": "integer", "minimum": 1})
    ),
    ("post", "/v2/repository/index"): _json_body(_object(ready={"type": "boolean"}), required=False),
    ("post", "/v2/repository/models/{model}/load"): _json_body(_object(parameters=_PARAMETERS), required=False),
    ("post", "/v2/repository/models/{model}/unload"): _json_body(_object(parameters=_PARAMETERS), required=False),
}


def _own_header(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


_HEADERS = (
    _own_header(
        "X-Request-Timeout-Ms",
        {"type": "integer", "minimum": 1, "maximum": 86_400_000},
        "A deadline, from the headers to the answer",
    ),
    _own_header("X-Request-Id", {"type": "string", "pattern": "^[!-~]{1,128}$"}, "Echoed, and in the server's log"),
    _own_header(
        "X-Rowwise-Explain", {"type": "string", "enum": ["0", "1"]}, "1: Server-Timing says how it was batched"
    ),
)
_JSON_LENGTH = _own_header(
    "Inference-Header-Content-Length", {"type": "integer", "minimum": 0}, "Bytes of JSON, before the binary values"
)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A path that a model answers. ``answer`` is its content; empty where it is always refused."""

    path: str
    operation_id: str
    summary: str
    body: Json
    answer: Json
    headers: tuple[Json, ...] = field(default=_HEADERS)


#: Which version answers: the one that serves, one by its number, one by its label.
_WHICH = {"": "", "/versions/{version}": "_of_version", "/labels/{label}": "_of_label"}
_VERBS = {
    "predict": ("Predict", "Predict"),
    "gradient": ("Differentiate", "Gradient of a scalar output"),
    "jacobian": ("Differentiate", "Jacobian of an output"),
    "hessian": ("Differentiate", "Hessian of a scalar output"),
    "classify": ("Predict", "Not offered: use :predict"),
    "regress": ("Predict", "Not offered: use :predict"),
}
_NOT_OFFERED = frozenset({"classify", "regress"})

PREDICTIONS = (
    *(
        Prediction(
            path=f"/v1/models/{{model}}{which}:{verb}",
            operation_id=verb + suffix,
            summary=summary,
            body=_json_body(_ref(schema)),
            answer={} if verb in _NOT_OFFERED else {"application/json": {"schema": _ref("Predicted")}},
        )
        for which, suffix in _WHICH.items()
        for verb, (schema, summary) in _VERBS.items()
    ),
    *(
        Prediction(
            path=f"/v2/models/{{model}}{which}/infer",
            operation_id="infer" + suffix,
            summary="Infer, in the Open Inference Protocol",
            body={
                "required": True,
                "content": {
                    "application/json": {"schema": _ref("Infer")},
                    "application/octet-stream": {"schema": _OCTETS},
                },
            },
            answer={
                "application/json": {"schema": _ref("Inferred")},
                "application/octet-stream": {"schema": _OCTETS},
            },
            headers=(*_HEADERS, _JSON_LENGTH),
        )
        for which, suffix in _WHICH.items()
    ),
)
