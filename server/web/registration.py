"""What ``PUT /v1/models/{m}`` may carry, from bytes to a specification and a source."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from server.build.source import ImportSource
from server.protocol.errors import MalformedRequest
from server.protocol.json_examples import json_kind, parse_json
from server.settings import Settings
from server.spec import ModelSpec
from server.web.errors import ImportNotAllowed, RegistrationRefused, SourceNotEnabled

__all__ = ["read_registration", "read_spec"]

_IMPORT_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*", re.ASCII)
#: How many faults of a specification are told at once.
_SHOWN_FAULTS = 5


def read_spec(text: bytes) -> ModelSpec:
    """Read the part ``spec``. Errors: RegistrationRefused."""
    return _validated(_parsed(text, "spec"))


def read_registration(body: bytes, settings: Settings) -> tuple[ModelSpec, ImportSource]:
    """Read a JSON registration: ``import_path``, and the specification's fields beside it or under ``spec``.

    Errors: RegistrationRefused, ImportNotAllowed, SourceNotEnabled.
    """
    message = _parsed(body, "the body")
    if not isinstance(message, dict):
        raise RegistrationRefused(f"the body must be a JSON object, got {json_kind(message)}")
    if "source" in message:
        raise SourceNotEnabled
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
    if "spec" in message:
        spec = message.pop("spec")
        if message:
            raise RegistrationRefused(f"send the specification under 'spec' or beside it, not both: {sorted(message)}")
        message = spec
    return _validated(message), ImportSource(target)


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
