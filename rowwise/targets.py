"""What to register: ``MODULE:FUNCTION``, ``FILE.py:FUNCTION``, a SavedModel, an archive of one or a Keras file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from rowwise.declaration import declared_inputs, declared_spec
from rowwise.errors import CannotLoad
from rowwise.input_specs import merged

__all__ = ["Target", "find_saved_model", "load_target", "resolve"]

_ARCHIVES = (".tar.gz", ".tgz", ".zip")
#: Keras 3 writes the first; the others may hold Python code that Keras runs even in its safe mode.
_KERAS = (".keras", ".h5", ".hdf5")
_FUNCTION = "predict"
#: How many of a module's own examples go along as probe inputs: as many as a server takes that imports the module.
_N_EXAMPLES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A function or a path, with the inputs and options that it declares itself."""

    value: Any
    inputs: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)


def resolve(value: Any) -> Target:
    """Return ``value`` with what its decorator declared; a path is checked. Errors: CannotLoad."""
    if isinstance(value, (str, Path)):
        path = Path(value)
        return Target(value=_keras_model(path) if path.name.endswith(_KERAS) else find_saved_model(path))
    spec = declared_spec(value)
    return _declared(value, declared_inputs(value) or _annotated(value), spec)


def load_target(text: str) -> Target:
    """Find what a command line names.

    A path that exists is a SavedModel directory, an archive of one, or a ``.keras`` file, which is loaded in Keras'
    safe mode. Else ``MODULE:FUNCTION`` is imported, with the current directory on the path; ``MODULE`` alone means its
    ``predict``. Its inputs are those of
    ``rowwise.example_model`` or of the annotations, else the module's ``INPUTS``, with its options in ``SPEC`` and real
    examples, to be checked besides random ones, from ``examples()``.
    Errors: CannotLoad.
    """
    path = Path(text)
    if path.exists() and path.suffix != ".py":
        return resolve(path)
    module_name, colon, attribute = text.partition(":")
    if module_name.endswith(".py"):
        module = _load_file(Path(module_name))
    elif not colon and ("/" in text or text.endswith(_ARCHIVES)):
        raise CannotLoad(f"{text}: no such file or directory")
    else:
        module = _import(module_name)
    return _from_module(module, attribute or _FUNCTION)


def find_saved_model(path: Path) -> Path:
    """Return ``path`` if it is a SavedModel directory or an archive. Errors: CannotLoad."""
    if path.is_file() and path.name.endswith(_ARCHIVES):
        return path
    if (path / "saved_model.pb").is_file() or (path / "saved_model.pbtxt").is_file():
        return path
    if not path.exists():
        raise CannotLoad(f"{path}: no such file or directory")
    raise CannotLoad(
        f"{path} is neither a SavedModel directory (it would hold saved_model.pb) nor an archive of one "
        f"({', '.join(_ARCHIVES)})"
    )


def _keras_model(path: Path) -> Any:
    """Load a Keras file without running code that came with it. Errors: CannotLoad."""
    if not path.is_file():
        raise CannotLoad(f"{path}: no such file")
    if path.suffix != ".keras":
        raise CannotLoad(
            f"{path} is a file of older Keras, which may hold Python code: load it yourself if you trust it, and "
            "register the model, or save it as a .keras file"
        )
    from keras import saving

    try:
        return saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:  # whatever Keras or a layer raises is the user's to read
        raise CannotLoad(f"{path} could not be loaded in Keras' safe mode: {type(error).__name__}: {error}") from error


def _from_module(module: ModuleType, attribute: str) -> Target:
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise CannotLoad(f"module {module.__name__!r} has no {attribute!r}") from error
    inputs = declared_inputs(value)
    if inputs is not None:
        return resolve(value)
    spec = dict(getattr(module, "SPEC", {}))
    make_examples = getattr(module, "examples", None)
    if callable(make_examples):
        spec.setdefault("examples", _first_examples(make_examples, module.__name__))
    return _declared(value, _annotated(value) or getattr(module, "INPUTS", None), spec)


def _annotated(value: Any) -> Mapping[str, Any] | None:
    """Return the inputs that a function's annotations declare, or None."""
    # Late: who only predicts loads nothing of the server.
    from server.annotations import annotated_inputs

    return annotated_inputs(value) or None


def _first_examples(make_examples: Callable[[], Iterable[Any]], module_name: str) -> list[Any]:
    try:
        return list(islice(make_examples(), _N_EXAMPLES))
    except Exception as error:  # whatever the user's module raises is the user's to read
        raise CannotLoad(f"{module_name}.examples() failed: {type(error).__name__}: {error}") from error


def _declared(value: Any, inputs: Mapping[str, Any] | None, spec: dict[str, Any]) -> Target:
    details = spec.pop("inputs", {})
    return Target(value=value, inputs=merged(inputs, details) if inputs is not None else None, spec=spec)


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise CannotLoad(
                f"there is no module {name!r}, seen from {here}, and no file or directory of that name"
            ) from error
        raise CannotLoad(f"importing {name!r} failed: {error}") from error
    except Exception as error:  # whatever the user's module raises is the user's to read
        raise CannotLoad(f"importing {name!r} failed: {type(error).__name__}: {error}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CannotLoad(f"{path}: no such file")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None, "a .py file has a spec"
    assert spec.loader is not None, "... and a loader"
    module = module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # as above
        raise CannotLoad(f"running {path} failed: {type(error).__name__}: {error}") from error
    return module
