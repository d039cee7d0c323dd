"""Models of the matrix: examples of every dtype and form, and who answers them, for one example and for a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from server.protocol import Array, Column, Rows
from server.protocol.dtypes import numpy_dtype
from server.signature import LengthAxis, ModelSignature, TensorSignature
from tests.protocol.asked import EVERY_DTYPE, values_of
from tests.web.scripted_model import ScriptedModel

__all__ = ["FORMS", "Computing", "Echo", "Form", "every_echo", "one_example", "ordinary"]


def ordinary(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Random values of a dtype that every protocol keeps; strings with NUL, of other alphabets, and empty."""
    random = np.random.default_rng(seed)
    if dtype == "string":
        array = np.empty(int(np.prod(shape)), object)
        array[:] = [
            (b"", b"a\0b", "żółć".encode(), b"\xff\xfe\0", b"null", b'"\\{}')[place % 6] + b"x" * (place % 3)
            for place in range(array.size)
        ]
        return array.reshape(shape)
    wanted = numpy_dtype(dtype)
    if wanted.kind in "iu":
        limits = np.iinfo(wanted)
        return random.integers(limits.min, limits.max, shape, wanted, endpoint=True)
    if wanted.kind == "b":
        return random.integers(0, 2, shape) == 1
    return (random.normal(size=shape) * 100).astype(wanted)


def _edges(dtype: str) -> Array:
    """The limits of a dtype: NaN, infinities and the smallest number where it has them."""
    values = values_of(dtype)
    if dtype in {"float16", "float32", "float64", "bfloat16"}:
        bits = np.dtype(f"u{values.dtype.itemsize}")
        tiny = np.ones((1, 2), bits).view(values.dtype)  # the least positive one
        return np.concatenate([values, tiny])
    return values


@dataclass(frozen=True)
class Form:
    """A shape of examples and how many; ``values`` makes them."""

    shape: tuple[int | str, ...]
    values: Callable[[str], Array]


#: By name, what a request may look like. Shapes of values: [n, *shape].
FORMS = {
    "scalars": Form((), lambda dtype: ordinary(dtype, 3)),
    "one-scalar": Form((), lambda dtype: ordinary(dtype, 1)),
    "one-vector": Form((5,), lambda dtype: ordinary(dtype, 1, 5)),
    "limits": Form((2,), _edges),
    "matrices": Form((3, 4), lambda dtype: ordinary(dtype, 7, 3, 4)),
    "deep": Form((2, 1, 3, 2), lambda dtype: ordinary(dtype, 2, 2, 1, 3, 2)),
    "zero-size": Form((0,), lambda dtype: ordinary(dtype, 2, 0)),
    "zero-size-inside": Form((2, 0, 3), lambda dtype: ordinary(dtype, 3, 2, 0, 3)),
    "of-a-length": Form(("n", 2), lambda dtype: ordinary(dtype, 2, 3, 2)),
    "of-one-length": Form(("n", 2), lambda dtype: ordinary(dtype, 1, 8, 2)),
    "of-no-length": Form(("n",), lambda dtype: ordinary(dtype, 2, 0)),
    "thousand": Form((2,), lambda dtype: ordinary(dtype, 1_000, 2)),
}


def _tensor(name: str, dtype: str, shape: tuple[int | str, ...]) -> TensorSignature:
    return TensorSignature(name=name, dtype=dtype, shape=shape)


def _signature(*tensors: TensorSignature, outputs: Sequence[TensorSignature]) -> ModelSignature:
    axes = (LengthAxis(name="n", max=8, buckets=(4, 8)),) if any(not tensor.is_fixed for tensor in tensors) else ()
    return ModelSignature(inputs=tensors, outputs=tuple(outputs), axes=axes)


class Echo(ScriptedModel):
    """Answers ``y`` with ``x``, bit for bit."""

    def __init__(self, dtype: str, shape: tuple[int | str, ...], *, name: str, version: int = 3) -> None:
        signature = _signature(_tensor("x", dtype, shape), outputs=[_tensor("y", dtype, shape)])
        super().__init__(name, version, signature=signature)

    @staticmethod
    def sums(rows: Rows) -> list[Column]:
        return [rows.columns[0]]


def one_example(example: dict[str, Array]) -> dict[str, Array]:
    """What ``Computing`` is for one example: the oracle. Shapes: outputs ``[1, ...]``."""
    image, tag = example["image"], example["tag"]
    longest = max(np.float32(0), *np.abs(image).reshape(-1))
    return {
        "scaled": np.array([image / (longest + np.float32(1))]),
        "count": np.array([np.count_nonzero(image > 0)]),
        "reversed_bytes": np.array([tag.item()[::-1]], object),
        "any": np.array([image.any()]),
    }


class Computing(ScriptedModel):
    """Two inputs and four outputs of different dtypes, computed by the batch."""

    OUTPUTS = (
        _tensor("scaled", "float32", (2, 3)),
        _tensor("count", "int64", ()),
        _tensor("reversed_bytes", "string", ()),
        _tensor("any", "bool", ()),
    )

    def __init__(self, version: int = 3) -> None:
        inputs = (_tensor("image", "float32", (2, 3)), _tensor("tag", "string", ()))
        super().__init__("computing", version, signature=_signature(*inputs, outputs=self.OUTPUTS))

    @staticmethod
    def sums(rows: Rows) -> list[Column]:
        images, tags = rows.columns
        images = np.asarray(images)
        flat = images.reshape(rows.n, -1)
        largest = np.maximum(np.abs(flat).max(axis=1), np.float32(0))
        reversed_tags = np.empty(rows.n, object)
        reversed_tags[:] = [tag[::-1] for tag in np.asarray(tags).reshape(-1).tolist()]
        return [
            images / (largest[:, None, None] + np.float32(1)),
            np.count_nonzero(flat > 0, axis=1).astype(np.int64),
            reversed_tags,
            flat.any(axis=1),
        ]


def every_echo() -> list[tuple[str, str, Echo]]:
    """A model for each dtype and form."""
    made: list[tuple[str, str, Echo]] = []
    for dtype in EVERY_DTYPE:
        for form, described in FORMS.items():
            made.append((dtype, form, Echo(dtype, described.shape, name=f"{dtype}-{form}")))
    return made
