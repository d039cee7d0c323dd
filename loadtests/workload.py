"""What is sent and what must come back: a model's real examples as request bodies, each with its right answer.

The answers are the per-example function's own, one example at a time. A workload is a JSON file, so that the
processes that send load need no TensorFlow: ``python -m loadtests.workload digits FILE`` writes one.
"""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

__all__ = ["MODELS", "Workload", "build", "equal", "load", "make"]

#: Served name -> module of the per-example model.
MODELS = {
    "digits": "models.digits",
    "digits_convnet": "models.digits_convnet",
    "lstm": "models.lstm",
    "implied_volatility": "models.implied_volatility",
    "embedding": "models.embedding",
}
#: Batched kernels sum in another order than single ones: what float32 leaves of a sum is about this.
TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests to one model in TensorFlow Serving's row form, one example each.

    ``bodies[i]`` is the JSON of request i and ``answers[i]`` what its ``predictions`` must hold, within
    ``tolerance`` (absolute, and relative to the expected number). ``in_two``: head and body are sent apart, as most
    Python clients do.
    """

    model: str
    bodies: tuple[bytes, ...]
    answers: tuple[Any, ...]
    tolerance: float = TOLERANCE
    in_two: bool = False

    @property
    def path(self) -> str:
        """The URL path that the requests go to."""
        return f"/v1/models/{self.model}:predict"

    def accepts(self, index: int, body: bytes) -> bool:
        """Return whether ``body`` is the right answer to request ``index``."""
        try:
            predictions = orjson.loads(body)["predictions"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return False
        return equal(predictions, [self.answers[index]], tolerance=self.tolerance)

    def requests(self, host: str) -> list[bytes]:
        """Return the bytes of every request, head and body, for HTTP/1.1 with keep-alive."""
        head = f"POST {self.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
        return [b"%s%d\r\n\r\n%s" % (head.encode(), len(body), body) for body in self.bodies]

    def to_json(self) -> bytes:
        """Return the file form; ``load`` reads it."""
        return orjson.dumps(
            {
                "model": self.model,
                "tolerance": self.tolerance,
                "bodies": [body.decode() for body in self.bodies],
                "answers": self.answers,
            }
        )


def equal(got: Any, expected: Any, *, tolerance: float) -> bool:
    """Return whether two JSON values agree: numbers within the tolerance, everything else exactly."""
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(equal(a, b, tolerance=tolerance) for a, b in zip(got, expected, strict=True))
        )
    if isinstance(expected, Mapping):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(equal(got[key], expected[key], tolerance=tolerance) for key in expected)
        )
    if isinstance(expected, float):
        is_number = isinstance(got, (int, float)) and not isinstance(got, bool)
        return is_number and math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance)
    return type(got) is type(expected) and bool(got == expected)


def load(path: Path) -> Workload:
    """Read a workload from its file."""
    fields = orjson.loads(path.read_bytes())
    return Workload(
        model=fields["model"],
        bodies=tuple(body.encode() for body in fields["bodies"]),
        answers=tuple(fields["answers"]),
        tolerance=fields["tolerance"],
    )


def make(model: str, directory: Path) -> Path:
    """Write a model's workload into ``directory`` from a process of its own and return the file's path.

    Errors: ValueError for an unknown model; RuntimeError with the process's last lines if it fails.
    """
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}; there are {', '.join(MODELS)}")
    path = directory / f"{model}.json"
    result = subprocess.run(
        [sys.executable, "-m", "loadtests.workload", model, str(path)], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise RuntimeError(f"making the requests for {model!r} failed:\n{result.stderr[-2000:]}")
    return path


def build(model: str) -> Workload:
    """Run a model on its examples, one at a time. Imports TensorFlow, and trains the model if need be."""
    import tensorflow as tf

    module = importlib.import_module(MODELS[model])
    function = tf.function(module.predict).get_concrete_function(**module.INPUTS)
    told = {entry.get("length_input") for entry in getattr(module, "SPEC", {}).get("inputs", {}).values()}
    bodies, answers = [], []
    for example in module.examples():
        outputs = function(**{name: tf.constant(value) for name, value in example.items()})
        sent = {name: value for name, value in example.items() if name not in told}
        bodies.append(_json({"instances": [_bare(sent)]}))
        answers.append(orjson.loads(_json(_bare({name: value.numpy() for name, value in outputs.items()}))))
    return Workload(model=model, bodies=tuple(bodies), answers=tuple(answers))


def _bare(named: Mapping[str, Any]) -> Any:
    """One named value goes without its name."""
    return next(iter(named.values())) if len(named) == 1 else dict(named)


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


if __name__ == "__main__":
    _, chosen, target = sys.argv
    with Path(target).open("wb") as file:
        file.write(build(chosen).to_json())
