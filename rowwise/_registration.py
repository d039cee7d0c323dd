"""From what the caller registers to an archive and its specification, ready to upload."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rowwise._archive import pack
from rowwise.errors import WrongInputs
from rowwise.input_specs import normalized
from rowwise.progress import RegistrationView
from rowwise.targets import Target
from rowwise.values import to_wire
from rowwise.version_status import Stage

__all__ = ["Submission", "UploadReader", "prepare", "repr_digest", "spec_as_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One archive file and the JSON of its specification."""

    archive: Path
    spec: dict[str, Any]


def prepare(
    target: Target,
    *,
    inputs: Mapping[str, Any] | None,
    spec: Mapping[str, Any],
    scratch: Path,
    view: RegistrationView,
) -> Submission:
    """Trace and pack ``target`` in the directory ``scratch``. TensorFlow is loaded only to trace.

    ``inputs`` and ``spec`` go before what the target declares itself.
    Errors: WrongInputs, CannotTrace, CannotLoad.
    """
    options = {**target.spec, **spec}
    declared = inputs if inputs is not None else target.inputs
    saved_model = target.value
    if not isinstance(saved_model, Path):
        from rowwise._trace import inputs_of, save_example_function

        view.show(Stage(name="trace"))
        declared = declared if declared is not None else inputs_of(target.value)
        if declared is None:
            raise WrongInputs(
                "inputs: a function doesn't say what one example looks like; pass for example "
                "inputs={'x': tf.TensorSpec([64], tf.float32)}, or decorate it with rowwise.example_model"
            )
        saved_model = scratch / "saved_model"
        outputs = save_example_function(target.value, declared, saved_model)
        if len(outputs) > 1 and options.get("outputs") is None:
            # A signature knows its outputs by their names only.
            options["outputs"] = outputs
    if declared is not None:
        options["inputs"] = normalized(declared)
    view.show(Stage(name="pack"))
    archive = saved_model if saved_model.is_file() else pack(saved_model, scratch / "model.tar.gz")
    return Submission(archive=archive, spec=spec_as_json(options))


def repr_digest(path: Path) -> str:
    """Return a file's ``Repr-Digest``, by which the server sees that it came whole. Source: RFC 9530."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return f"sha-256=:{base64.b64encode(digest).decode()}:"


def spec_as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return registration options as JSON types; arrays in ``examples`` become lists. Errors: WrongInputs."""
    return {str(key): _plain(entry, where=f"option {key!r}") for key, entry in value.items()}


def _plain(value: Any, *, where: str) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, where=where) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        ordered = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [_plain(entry, where=where) for entry in ordered]
    return to_wire(value, where=where)


class UploadReader:
    """A file that tells how far it has been read, for httpx to upload."""

    def __init__(self, file: IO[bytes], on_read: Callable[[Stage], None]) -> None:
        self._file = file
        self._on_read = on_read
        self._total = os.fstat(file.fileno()).st_size

    def fileno(self) -> int:
        """Return the file's descriptor: httpx takes the upload's size from it."""
        return self._file.fileno()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to ``offset``: httpx starts at 0."""
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes and report the progress, in KiB."""
        chunk = self._file.read(size)
        self._on_read(Stage(name="upload", done=self._file.tell() // 1024, total=max(1, self._total // 1024)))
        return chunk
