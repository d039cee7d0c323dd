"""Functions that are registered by import path: only under packages that the operator listed.

Nothing here needs TensorFlow, so that a path that is refused is refused at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from server.build.errors import SourceRefused

__all__ = ["import_function"]


def import_function(target: str, import_packages: Sequence[str]) -> tuple[Any, Any]:
    """Import ``MODULE:FUNCTION`` and return the function and its module.

    Errors: SourceRefused if the package is not among ``import_packages``, the module fails to import or has no
        such function.
    """
    module_name, _, function_name = target.partition(":")
    if not module_name or not function_name.isidentifier():
        raise SourceRefused(f"import path {target!r}: expected MODULE:FUNCTION, for example models.digits:predict")
    package = module_name.partition(".")[0]
    if package not in import_packages:
        raise SourceRefused(
            f"import path {target!r}: package {package!r} may not be imported here; the operator lists packages "
            f"with --import-package, now: {', '.join(sorted(import_packages)) or 'none'}"
        )
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise SourceRefused(f"import path {target!r}: {type(error).__name__}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise SourceRefused(f"import path {target!r}: module {module_name} has no function {function_name!r}")
    return function, module
