"""What ``rowwise register`` asks of a registration besides ``--spec``: an option for each field that is one value.

Inputs, examples and derivatives with options of their own are written in JSON, as ``--spec``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

__all__ = [
    "Activate",
    "BatchDimension",
    "Buckets",
    "DefaultTimeoutMs",
    "Derivatives",
    "Invariant",
    "Labels",
    "Outputs",
    "Queue",
    "Random",
    "Signature",
    "Tolerance",
    "with_options",
]

Buckets = Annotated[
    str | None,
    typer.Option(
        "--buckets",
        metavar="N,N,...",
        help="Batch sizes to compile, such as 1,8,64; or auto: powers of two, measured (auto).",
        show_default=False,
    ),
]
Signature = Annotated[
    str | None,
    typer.Option(
        "--signature", metavar="NAME", help="Signature of a SavedModel (serving_default).", show_default=False
    ),
]
BatchDimension = Annotated[
    bool | None,
    typer.Option(
        "--batch-dimension/--no-batch-dimension",
        help="Whether the first dimension of a SavedModel's signature is a batch's (recognized).",
        show_default=False,
    ),
]
Outputs = Annotated[
    str | None,
    typer.Option(
        "--outputs",
        metavar="NAME,NAME,...",
        help="All outputs in the order that answers have them (the function's; a SavedModel's are by name).",
        show_default=False,
    ),
]
Queue = Annotated[
    int | None,
    typer.Option(
        "--queue", min=1, metavar="N", help="Most rows that wait before requests are refused.", show_default=False
    ),
]
DefaultTimeoutMs = Annotated[
    int | None,
    typer.Option(
        "--default-timeout-ms",
        min=1,
        metavar="MS",
        help="Deadline of requests that name none, in milliseconds.",
        show_default=False,
    ),
]
Invariant = Annotated[
    bool | None,
    typer.Option(
        "--invariant/--no-invariant",
        help="The same bits for the same example at any load (no).",
        show_default=False,
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="X",
        help="How far batched answers may be from the function's own (the dtype's).",
        show_default=False,
    ),
]
Random = Annotated[
    Literal["seeded", "refuse"] | None,
    typer.Option("--random", help="What becomes of a function that draws random numbers (seeded).", show_default=False),
]
Derivatives = Annotated[
    list[str] | None,
    typer.Option(
        "--derivative",
        metavar="KIND",
        help="gradient, jacobian or hessian, answered besides. Repeat for more.",
        show_default=False,
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME[=TEXT]", help="A label of the version. Repeat for more.", show_default=False),
]
Activate = Annotated[
    bool | None,
    typer.Option(
        "--activate/--no-activate",
        help="Whether it answers once it is built, or waits until it is activated (it answers).",
        show_default=False,
    ),
]


def with_options(
    spec: Mapping[str, Any],
    *,
    buckets: str | None,
    outputs: str | None,
    labels: Sequence[str] | None,
    **values: Any,
) -> dict[str, Any]:
    """Return ``spec`` with what was given as options over it: fields by their names; None and empty were not given.

    Errors: typer.BadParameter.
    """
    options = {**spec, **{name: value for name, value in values.items() if value is not None and value != []}}
    if buckets is not None:
        options["buckets"] = _buckets(buckets)
    if outputs is not None:
        options["outputs"] = [name.strip() for name in outputs.split(",")]
    if labels:
        named = (label.partition("=") for label in labels)
        options["labels"] = {**(spec.get("labels") or {}), **{name: text for name, _, text in named}}
    return options


def _buckets(text: str) -> str | list[int]:
    if text == "auto":
        return text
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isascii() and size.isdigit() and int(size) > 0 for size in sizes):
        raise typer.BadParameter(
            f"{text!r} are no batch sizes: expected numbers such as 1,8,64, or auto", param_hint="--buckets"
        )
    return [int(size) for size in sizes]
