"""Run in a process of its own that can't import us: answers of an exported SavedModel, as JSON."""

from __future__ import annotations

import importlib.abc
import json
import sys
from typing import Any

OURS = ("rowwise", "server", "vectorizer")


class Forbidden(importlib.abc.MetaPathFinder):
    """Refuses to find our packages."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname.partition(".")[0] in OURS:
            raise ImportError(f"{fullname} must not be needed")


def main() -> None:
    """Call the signatures that standard input names with its arrays."""
    sys.meta_path.insert(0, Forbidden())
    import tensorflow as tf

    request = json.load(sys.stdin)
    loaded = tf.saved_model.load(request["path"])
    answers: dict[str, Any] = {"signatures": sorted(loaded.signatures), "answers": []}
    for signature, inputs in request["calls"]:
        function = loaded.signatures[signature]
        _, specs = function.structured_input_signature
        try:
            result = function(**{name: tf.constant(inputs[name], spec.dtype) for name, spec in specs.items()})
        except tf.errors.InvalidArgumentError as error:
            answers["answers"].append(str(error))
        else:
            answers["answers"].append(
                {
                    name: [each.decode() for each in value.numpy()]
                    if value.dtype == tf.string
                    else value.numpy().tolist()
                    for name, value in result.items()
                }
            )
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
