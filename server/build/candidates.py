"""Every form of every bucket on disk, to be measured: in one SavedModel, or in several of fewer forms each.

A session that prepares a callable hands TensorFlow's optimizer the functions of its whole SavedModel, several times
over, and not those alone that the callable reaches. So with many forms in one file, each costs as much as all of them
together: a recurrent network of four lengths and seven batch sizes has a hundred, and each took eight seconds. Apart,
every file has the variables once more, so that is for models whose variables are small.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from server.build.declaration import Declaration
from server.build.footprint import variables_bytes
from server.build.forms import Form, has_tables, save_forms
from server.engine.nesting import inter_op_threads
from server.graph_checks.check import check_saved_model
from vectorizer import Vectorized

__all__ = ["Candidates"]

#: As many forms share a file: few enough that the others' cost is small beside its own.
_FORMS_EACH = 8
_MAX_FILES = 12
#: Of all files' sessions together, one with one core and one with all; a builder may have 512 and 32 for each core.
_MAX_INTER_OP_THREADS = 256
#: All copies of the variables together, in memory.
_MAX_COPIES_BYTES = 2**28


class Candidates:
    """``paths`` are the SavedModels by form."""

    def __init__(self, directory: Path, paths: Mapping[Form, Path]) -> None:
        self._directory = directory
        self.paths = paths

    @classmethod
    def write(
        cls, vectorized: Vectorized, declaration: Declaration, forms: Mapping[Form, Any], directory: Path
    ) -> Candidates:
        """Write all ``forms`` below ``directory``. Errors: GraphRefused for a graph that no engine would load."""
        paths: dict[Form, Path] = {}
        remaining = iter(sorted(forms))
        for number, size in enumerate(_sizes(len(forms), _max_files(vectorized, declaration, forms))):
            part = list(islice(remaining, size))
            path = directory / str(number)
            save_forms(vectorized, declaration, {form: forms[form] for form in part}, path)
            # The engine would not load what this refuses: an imported function was never checked.
            check_saved_model(path, serves=True)
            paths |= dict.fromkeys(part, path)
        return cls(directory, paths)

    def hand_over(self, forms: set[Form], path: Path) -> bool:
        """Move the SavedModel that holds ``forms`` and no others to ``path``, if there is one; delete the others."""
        (whole, *others) = dict.fromkeys(self.paths.values())
        fits = not others and forms == self.paths.keys() and whole.exists()
        if fits:
            whole.rename(path)
        shutil.rmtree(self._directory, ignore_errors=True)
        return fits


def _max_files(vectorized: Vectorized, declaration: Declaration, forms: Mapping[Form, Any]) -> int:
    """Return how many files may have a copy of what the forms share. The forms that must agree are loaded together."""
    if declaration.spec.invariant or has_tables(vectorized):
        return 1
    largest = max(form.bucket for form in forms)
    n_threads = inter_op_threads(graph.graph.as_graph_def() for form, graph in forms.items() if form.bucket == largest)
    by_threads = _MAX_INTER_OP_THREADS // (2 * n_threads)
    by_memory = _MAX_COPIES_BYTES // max(1, variables_bytes(vectorized))
    return max(1, min(_MAX_FILES, by_threads, by_memory))


def _sizes(n_forms: int, max_files: int) -> Sequence[int]:
    """Return how many forms each file has, as evenly as can be."""
    n_files = min(max_files, -(-n_forms // _FORMS_EACH))
    least, more = divmod(n_forms, n_files)
    return [least + (number < more) for number in range(n_files)]
