"""What ``PUT /v1/models/{m}`` may carry, from bytes to a specification and a source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from server.build.source import ImportSource, TextSource
from server.protocol.errors import MalformedRequest
from server.protocol.json_examples import json_kind, parse_json
from server.settings import Settings
from server.spec import MODEL_NAME, ModelSpec
from server.store.errors import InvalidName
from server.web.errors import ImportNotAllowed, RegistrationRefused, SourceNotEnabled
from server.web.source_text import function_name, source_text, weights_bytes

__all__ = ["UploadedArchive", "read_announcement", "read_registration", "read_spec"]

_IMPORT_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*", re.ASCII)
#: How many faults of a specification are told at once.
_SHOWN_FAULTS = 5


def read_spec(text: bytes) -> ModelSpec:
    """Read the part ``spec``. Errors: RegistrationRefused."""
    return _validated(_parsed(text, "spec"))


def read_announcement(body: bytes) -> str:
    """Read what an upload is to be registered as, and return the model's name: ``{"model": ..., "spec": {...}}``.

    The specification may be left out. Errors: RegistrationRefused; InvalidName.
    """
    message = _parsed(body, "the body")
    if not isinstance(message, dict):
        raise RegistrationRefused(f"the body must be a JSON object, got {json_kind(message)}")
    if unknown := sorted(message.keys() - {"model", "spec"}):
        raise RegistrationRefused(f"the body may hold 'model' and 'spec', got {unknown[0][:60]!r} besides")
    model = message.get("model")
    if not isinstance(model, str):
        raise RegistrationRefused(f"'model' must be the name to register the upload under, got {json_kind(model)}")
    if not MODEL_NAME.fullmatch(model):
        raise InvalidName(model)
    _validated(message.get("spec", {}))
    return model


@dataclass(frozen=True, slots=True)
class UploadedArchive:
    """An archive that was uploaded before, in pieces: the ``id`` is the last part of its URL."""

    id: str


def read_registration(
    body: bytes, settings: Settings
) -> tuple[ModelSpec, ImportSource | TextSource | UploadedArchive, bytes | None]:
    """Read a JSON registration: ``import_path``, ``upload`` or ``source``, and the specification with it.

    The specification's fields stand beside it or under ``spec``.

    Returns the weights that came with the source as well, None if there are none.
    Errors: RegistrationRefused, ImportNotAllowed, SourceNotEnabled, BodyTooLarge.
    """
    message = _parsed(body, "the body")
    if not isinstance(message, dict):
        raise RegistrationRefused(f"the body must be a JSON object, got {json_kind(message)}")
    if "source" in message:
        if not settings.allow_source:
            raise SourceNotEnabled
        if "import_path" in message or "upload" in message:
            raise RegistrationRefused("send one of 'source', 'import_path' and 'upload'")
        text = source_text(message.pop("source"))
        function = function_name(message.pop("function", None))
        weights = weights_bytes(message.pop("weights", None))
        return _beside(message), TextSource(text, function), weights
    if "upload" in message and "import_path" not in message:
        upload = message.pop("upload")
        if not isinstance(upload, str):
            raise RegistrationRefused(f"'upload' must be a string, got {json_kind(upload)}")
        return _beside(message), UploadedArchive(upload.rpartition("/")[2]), None
    target = message.pop("import_path", None)
    if not isinstance(target, str):
        raise RegistrationRefused(
            'the registration names no \'import_path\': send {"import_path": "MODULE:FUNCTION"}, or upload an archive '
            "as multipart/form-data"
        )
    match = _IMPORT_PATH.fullmatch(target)
    if match is None:
        raise RegistrationRefused(f"import_path {target[:100]!r} is not of the form MODULE:FUNCTION")
    module = match["module"]
    if not any(module == package or module.startswith(package + ".") for package in settings.import_packages):
        raise ImportNotAllowed(target[:200], settings.import_packages)
    return _beside(message), ImportSource(target), None


def _beside(message: dict[str, Any]) -> ModelSpec:
    """Read what is left of a message: the specification's fields, or one ``spec`` with all of them."""
    if "spec" not in message:
        return _validated(message)
    spec = message.pop("spec")
    if message:
        raise RegistrationRefused(f"send the specification under 'spec' or beside it, not both: {sorted(message)}")
    return _validated(spec)


def _parsed(text: bytes, what: str) -> Any:
    try:
        return parse_json(text)
    except MalformedRequest as error:
        raise RegistrationRefused(f"{what}: {error}") from None


def _validated(value: Any) -> ModelSpec:
    try:
        return ModelSpec.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        told = [f"{'.'.join(('spec', *map(str, fault['loc'])))}: {fault['msg']}" for fault in faults[:_SHOWN_FAULTS]]
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise RegistrationRefused("; ".join(told) + more) from None
