"""The options of ``rowwise predict`` that say how an image becomes an input."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from rowwise.cli.images import ImageOptions, fraction

__all__ = ["ImageLayout", "ImageMode", "ImageOffset", "ImageResampling", "ImageScale", "ImageSize", "chosen"]

_PANEL = "Images (.png, .jpg)"

ImageMode = Annotated[
    Literal["L", "RGB", "RGBA"] | None,
    typer.Option("--image-mode", help="Convert to gray, colours, colours with alpha.", rich_help_panel=_PANEL),
]
ImageSize = Annotated[
    str | None,
    typer.Option(
        "--image-size",
        metavar="WxH|model",
        help="Resize to this width and height, or to those of the model's input.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
ImageResampling = Annotated[
    Literal["nearest", "box", "bilinear", "bicubic", "lanczos"],
    typer.Option("--image-resampling", help="How pixels are resized.", rich_help_panel=_PANEL),
]
ImageScale = Annotated[
    str | None,
    typer.Option(
        "--image-scale",
        metavar="X",
        help="Multiply every pixel (0 to 255) by a number or fraction, such as 1/255.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
ImageOffset = Annotated[
    str | None,
    typer.Option(
        "--image-offset", metavar="X", help="Add it to each, after that.", rich_help_panel=_PANEL, show_default=False
    ),
]
ImageLayout = Annotated[
    Literal["hwc", "chw"],
    typer.Option("--image-layout", help="Whether channels come last or first.", rich_help_panel=_PANEL),
]


def chosen(
    *,
    mode: str | None,
    size: str | None,
    resampling: str,
    scale: str | None,
    offset: str | None,
    layout: Literal["hwc", "chw"],
) -> ImageOptions:
    """Return what was asked for. Errors: typer.BadParameter."""
    numbers: dict[str, float | None] = {}
    for name, text in (("scale", scale), ("offset", offset)):
        try:
            numbers[name] = None if text is None else fraction(text)
        except (ValueError, ZeroDivisionError) as error:
            raise typer.BadParameter(
                f"expected a number or a fraction, got {text!r}", param_hint=f"--image-{name}"
            ) from (error)
    return ImageOptions(mode=mode, size=_size(size), resampling=resampling, layout=layout, **numbers)


def _size(text: str | None) -> tuple[int, int] | Literal["model"] | None:
    if text is None:
        return None
    if text == "model":
        return "model"
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if found is None:
        raise typer.BadParameter(
            f"expected WIDTHxHEIGHT, such as 224x224, or model, got {text!r}", param_hint="--image-size"
        )
    return int(found[1]), int(found[2])
