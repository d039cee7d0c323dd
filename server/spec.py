"""What a registration asks for: the ``spec`` part of ``PUT /v1/models/{m}``, checked as it comes in."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = ["MODEL_NAME", "DerivativeSpec", "InputSpec", "ModelSpec"]

#: A model's name is a path segment, a directory and a metric label: letters, digits, ``_``, ``-`` and ``.``,
#: not starting with a dot, at most 100 characters.
MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

_Rows = Annotated[int, Field(ge=1, le=65_536)]
#: TensorFlow's names, other names for them too. That a model can be served with it is for the builder to say.
_DTYPES = frozenset({
    "bool", "string", "float16", "float32", "float64", "bfloat16", "half", "float", "double", "complex64", "complex128",
    "int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8", "uint16", "uint32", "uint64",
    "qint8", "qint16", "qint32", "quint8", "quint16", "float4_e2m1fn", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "resource", "variant",
})  # fmt: skip


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InputSpec(_Strict):
    """One input of the per-example function. ``None`` in ``shape`` is a variable dimension."""

    dtype: str
    shape: tuple[Annotated[int, Field(ge=0, le=2**31 - 1)] | None, ...]
    #: Longest length of the variable dimension.
    max: Annotated[int, Field(ge=1, le=2**20)] | None = None
    #: Name of the scalar input that is told the true length. It is not sent by callers.
    length_input: str | None = None
    #: Padded lengths to compile; None lets the builder choose.
    lengths: tuple[Annotated[int, Field(ge=1)], ...] | None = None

    @field_validator("dtype")
    @classmethod
    def _dtype_is_one(cls, value: str) -> str:
        if value not in _DTYPES:
            raise ValueError(f"{value[:60]!r} is no dtype; use a name such as float32, int64, bool or string")
        return value

    @model_validator(mode="after")
    def _variable_dimension_is_declared(self) -> InputSpec:
        variable = sum(dim is None for dim in self.shape)
        if variable > 1:
            raise ValueError(f"shape {list(self.shape)} has {variable} variable dimensions: one at most")
        if variable and self.max is None:
            raise ValueError(f"shape {list(self.shape)} has a variable dimension: say its largest size as 'max'")
        if not variable and (self.max is not None or self.length_input is not None or self.lengths is not None):
            raise ValueError(
                f"'max', 'length_input' and 'lengths' go with a variable dimension (null), shape is {list(self.shape)}"
            )
        return self


class DerivativeSpec(_Strict):
    """A derivative that the model is to answer besides its outputs."""

    #: ``gradient`` and ``hessian`` are of a scalar output, ``jacobian`` of any.
    kind: Literal["gradient", "jacobian", "hessian"]
    #: None: the only output that can be differentiated.
    output: str | None = None
    #: Inputs or variables to differentiate by; None takes every float input.
    wrt: str | tuple[str, ...] | None = None
    #: Most rows times elements that are computed at once; None takes what a memory estimate allows.
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    #: Its name in costs, certificate and metrics; None makes one of the above.
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")] | None = None

    @model_validator(mode="before")
    @classmethod
    def _kind_alone(cls, value: Any) -> Any:
        """Take ``"gradient"`` for ``{"kind": "gradient"}``."""
        return {"kind": value} if isinstance(value, str) else value

    @field_validator("name")
    @classmethod
    def _name_is_free(cls, value: str | None) -> str | None:
        if value == "predict":
            raise ValueError("'predict' is the name of the model's own outputs: choose another")
        return value


class ModelSpec(_Strict):
    """A registration's options. Every field has a default; an archive of a typed function needs none."""

    #: Inputs by name; None takes them from the uploaded signature.
    inputs: dict[str, InputSpec] | None = None
    #: Signature of the uploaded SavedModel that holds the per-example function.
    signature: str = "serving_default"
    #: Names of its outputs in the order in which metadata and answers have them: a SavedModel's signature has none.
    #: None keeps an imported function's own, and is by name for a signature.
    outputs: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] | None = Field(
        default=None, min_length=1, max_length=1_000
    )
    #: Whether the first dimension of a SavedModel's signature is a batch's, and so removed; None lets it be recognized.
    batch_dimension: bool | None = None
    #: Batch sizes to compile: "auto" measures powers of two up to ``max_batch`` and stops where they stop paying.
    buckets: Literal["auto"] | tuple[_Rows, ...] = "auto"
    max_batch: _Rows = 64
    #: Op types that may run once per row.
    allow_looped: tuple[str, ...] = ()
    #: "seeded": a function that draws random numbers gets one more input, which callers may leave out; "refuse".
    random: Literal["seeded", "refuse"] = "seeded"
    #: Most rows waiting for this model before requests are refused; None takes the server's setting.
    queue: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    #: Deadline of a request that names none, in milliseconds; None takes the server's setting.
    default_timeout_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    #: True: the same example gets the same bits at any load, from buckets that agree; see ``server.invariant``.
    invariant: bool = False
    #: Absolute and relative tolerance of the parity check; None takes the dtype's own.
    tolerance: Annotated[float, Field(gt=0, lt=1)] | None = None
    #: Probe inputs: examples whose answers are checked besides random and edge ones.
    examples: tuple[dict[str, Any], ...] = Field(default=(), max_length=1_000)
    #: Derivatives to compile and to answer at ``:gradient``, ``:jacobian`` and ``:hessian``.
    derivatives: tuple[DerivativeSpec, ...] = Field(default=(), max_length=16)
    #: False: it does not serve once it is built, but waits to be activated, or to run as a shadow.
    activate: bool = True
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)

    @field_validator("buckets")
    @classmethod
    def _buckets_ascend(cls, value: Any) -> Any:
        return value if value == "auto" else tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _buckets_exist(self) -> ModelSpec:
        if self.buckets == ():
            raise ValueError("'buckets' is empty: name at least one batch size, or leave it out")
        return self
