"""``rowwise predict``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.status import Status

from rowwise._metadata import RemoteSignature
from rowwise.cli.examples import example_of_files, example_of_json, examples_of_file, has_images
from rowwise.cli.image_options import (
    ImageLayout,
    ImageMode,
    ImageOffset,
    ImageResampling,
    ImageScale,
    ImageSize,
    chosen,
)
from rowwise.cli.options import Ca, ModelName, TimeoutS, Token, Url, Version, connected
from rowwise.errors import RowwiseClientError
from rowwise.values import encode_json, shortest, to_wire

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["predict"]

#: Examples in a request: each part is printed when it is answered.
_N_PER_REQUEST = 256


def predict(
    name: ModelName,
    *,
    as_json: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="JSON",
            help="One example: a value where the model has one input, else an object of its inputs. '-' reads "
            "standard input.",
            show_default=False,
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]FILE",
            help="One input of one example from a .npy, .png or .jpg file, or all of them from an .npz file. Repeat "
            "for more inputs.",
            show_default=False,
        ),
    ] = None,
    many: Annotated[
        list[str] | None,
        typer.Option(
            "--examples",
            metavar="FILE",
            help="Many examples: a line of JSON for each (.jsonl, or - for standard input), the first axis of an array "
            "(.npy, or of every input in .npz), or an image each. Repeat for more.",
            show_default=False,
        ),
    ] = None,
    image_mode: ImageMode = None,
    image_size: ImageSize = None,
    image_resampling: ImageResampling = "bilinear",
    image_scale: ImageScale = None,
    image_offset: ImageOffset = None,
    image_layout: ImageLayout = "hwc",
    derivative: Annotated[
        Literal["gradient", "jacobian", "hessian"] | None,
        typer.Option(
            "--derivative", help="Print a derivative that the model declares, not its outputs.", show_default=False
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="NAME", help="The output to differentiate.", show_default=False),
    ] = None,
    wrt: Annotated[
        list[str] | None,
        typer.Option(
            "--wrt",
            metavar="NAME",
            help="The input or variable to differentiate by. Repeat for more.",
            show_default=False,
        ),
    ] = None,
    version: Version = None,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    ca: Ca = None,
    timeout_s: TimeoutS = 30.0,
) -> None:
    """Ask a model about one example or many, and print its outputs as JSON: a line for each example.

    An image is sent as the pixels that its file has, unless an option says how they are to be changed; nothing is
    turned, scaled or cut by itself.

    [bold]Examples[/bold]

        rowwise predict double --json 21

        rowwise predict mix --json '{"x": [1, 2, 3], "weight": 0.5}'

        rowwise predict digits --input pixels.npy

        rowwise predict digits --input seven.png --image-mode L --image-size 8x8 --image-scale 16/255

        rowwise predict mix --input x=x.npy --input weight=w.npy

        rowwise predict digits --examples scans.npy | jq 'index(max)'

        rowwise predict mix --json '{"x": [1, 2, 3], "weight": 0.5}' --derivative gradient --wrt weight

    Exit codes: 0 with the outputs; 2 where an example can't be read, else as for all commands.
    """
    if derivative is None and (output is not None or wrt):
        raise typer.BadParameter(
            "they choose a derivative: say which kind by --derivative", param_hint="--output / --wrt"
        )
    if sum(map(bool, (as_json is not None, inputs, many))) != 1:
        raise typer.BadParameter(
            "give one example by --json or by --input, or many by --examples",
            param_hint="--json / --input / --examples",
        )
    options = chosen(
        mode=image_mode,
        size=image_size,
        resampling=image_resampling,
        scale=image_scale,
        offset=image_offset,
        layout=image_layout,
    )
    # What is wrong in the command line is said before anybody is asked.
    given = None if as_json is None else example_of_json(as_json)
    files = [*(inputs or []), *(many or [])]
    if not has_images(files) and inputs:
        given = example_of_files(inputs, None, options)
    with connected(url, token, ca=ca, timeout_s=timeout_s) as client:
        signature = None
        if has_images(files):
            signature = RemoteSignature.from_metadata(client.metadata(name, version))
        if many:
            examples: Iterator[Any] = chain.from_iterable(examples_of_file(each, signature, options) for each in many)
        elif given is None:
            examples = iter([example_of_files(inputs or [], signature, options)])
        else:
            examples = iter([given])

        def ask(part: list[Any]) -> list[Any]:
            if derivative is None:
                return client.predict_many(name, part, version=version)
            return client.derivative_many(derivative, name, part, output=output, wrt=wrt or None, version=version)

        _print_all(ask, examples)


def _print_all(ask: Callable[[list[Any]], list[Any]], examples: Iterator[Any]) -> None:
    n_done = 0
    console = Console(stderr=True)
    # Lines that appear on the terminal are progress enough.
    is_shown = console.is_terminal and not sys.stdout.isatty()
    shown: AbstractContextManager[Status | None] = console.status("asking") if is_shown else nullcontext()
    with shown as status:
        while part := list(islice(examples, _N_PER_REQUEST)):
            try:
                predictions = ask(part)
            except RowwiseClientError as error:
                if n_done:
                    # The server counts from the first example of a request.
                    error.args = (f"after {n_done} examples that were answered: {error}", *error.args[1:])
                raise
            typer.echo("\n".join(_printed(prediction) for prediction in predictions))
            n_done += len(part)
            if status is not None:
                status.update(f"{n_done:,} examples answered")


def _printed(prediction: Any) -> str:
    outputs = prediction if isinstance(prediction, dict) else {"": prediction}
    # Numbers as they are: in the shortest form of their own precision.
    plain = {
        key: shortest(value) if value.dtype.kind in "biuf" else to_wire(value, where=f"output {key!r}")
        for key, value in outputs.items()
    }
    return encode_json(plain if isinstance(prediction, dict) else plain[""]).decode()
