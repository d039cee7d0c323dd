"""What a builder sees of the machine: Python and what is installed for it, the model's own code, and one version.

Code that the operator chose (an import path) sees the directories on the server's path too, the one that it was started
in among them, without what begins with a dot there: models import their neighbours, and read files beside them. What
callers handed in sees what is installed and nothing else.
"""

from __future__ import annotations

import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from server.jail import View, existing

__all__ = ["devices", "installed", "needed_files", "operators_code", "packages_path", "weights_cache"]

#: Of the system: programs and libraries, what the loader reads, time zones. Nothing that is somebody's.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/nvidia", "/opt/rocm")
_SETTINGS = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "OpenCL")
#: How many cores there are, of which kind.
_CORES = "/sys/devices/system"
_DEVICES = ("/dev/dri", "/dev/kfd")

#: The packages of this installation that a builder imports.
_OURS = ("server", "vectorizer", "rowwise")
_ROOT = Path(__file__).parents[2]


def devices() -> tuple[Path, ...]:
    """Return the nodes of the accelerators that this machine has."""
    return existing([*sorted(Path("/dev").glob("nvidia*")), *_DEVICES])


def installed(environment: Mapping[str, str]) -> View:
    """Return what Python and TensorFlow need to run: the same for every build."""
    pythons = {
        sys.prefix,
        sys.exec_prefix,
        sys.base_prefix,
        sys.base_exec_prefix,
        *map(str, _environment_of(sys.executable)),
    }
    paths = sysconfig.get_paths()
    libraries = [paths[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    loaded = [part for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") for part in environment.get(name, "").split(":")]
    nodes = devices()
    return View(
        readable=existing(
            [
                *_SYSTEM,
                *(Path("/etc", name) for name in _SETTINGS),
                _CORES,
                # A driver finds its devices in the rest of it.
                *(["/sys"] if nodes else []),
                *sorted(pythons),
                *libraries,
                *([own] if own else []),
                *(part for part in loaded if part),
                *(_ROOT / name for name in _OURS),
            ]
        ),
        listed=existing([_ROOT]),
        devices=nodes,
    )


def needed_files() -> tuple[Path, ...]:
    """Return files without which nothing can be built, one of each place that is installed to."""
    found = [importlib.util.find_spec(name) for name in ("numpy", "pydantic", "tensorflow", *_OURS)]
    return tuple(Path(spec.origin) for spec in found if spec is not None and spec.origin is not None)


def operators_code(path: Iterable[str]) -> View:
    """Return what import paths lead to: the directories of a ``sys.path``, "" the current one."""
    readable = [each for each in existing(part or "." for part in path) if each != Path("/")]
    return View(readable=tuple(readable), hidden=tuple(hidden for each in readable for hidden in _dotted(each)))


def packages_path(environment: Mapping[str, str]) -> str:
    """Return a PYTHONPATH by which a builder finds this installation, wherever it is started."""
    given = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join(dict.fromkeys([*given, str(_ROOT)]))


def weights_cache(environment: Mapping[str, str]) -> Path:
    """Return where the example models keep what they have learned (``models.training``)."""
    return Path(environment.get("ROWWISE_CACHE") or "~/.cache/rowwise").expanduser().absolute()


def _environment_of(executable: str) -> Iterator[Path]:
    """Return where a Python is that may be a link to another one."""
    yield Path(executable).parent
    yield Path(executable).resolve().parent


def _dotted(directory: Path) -> Iterator[Path]:
    """What begins with a dot holds settings, keys and histories. A virtual environment is shown by itself."""
    if directory.is_dir():
        yield from (Path(entry.path) for entry in os.scandir(directory) if entry.name.startswith("."))
