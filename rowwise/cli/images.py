"""Images as inputs of a model: decoded to their pixels, and changed only as they are asked to be."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

__all__ = ["IMAGE_SUFFIXES", "ImageOptions", "UnfitImage", "fraction", "read_image"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
Shape = Sequence[int | None]
#: Modes whose pixels are numbers: gray, with alpha, colours, 16 bits of gray.
_PLAIN = {"L", "LA", "RGB", "RGBA", "I;16"}


class UnfitImage(ValueError):
    """The file is no image, or its pixels are not the model's input; the sentence says which option changes that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """What is done to pixels. Without any of it they are sent as the file has them.

    ``mode``: L, RGB or RGBA. ``size``: (width, height), or "model" for the input's own. ``scale`` and ``offset``:
    pixel * scale + offset. ``layout``: whether channels come last or first.
    """

    mode: str | None = None
    size: tuple[int, int] | Literal["model"] | None = None
    resampling: str = "bilinear"
    scale: float | None = None
    offset: float | None = None
    layout: Literal["hwc", "chw"] = "hwc"


def fraction(text: str) -> float:
    """Read a number or a fraction, 1/255. Errors: ValueError."""
    over, slash, under = text.partition("/")
    value = float(over) / float(under) if slash else float(over)
    if not np.isfinite(value):
        raise ValueError(f"{text!r} is no finite number")
    return value


def read_image(
    path: Path, *, options: ImageOptions, shape: Shape | None, dtype: np.dtype[Any] | None
) -> np.ndarray[Any, Any]:
    """Return an image's pixels as an input of one example.

    Shapes: ``[height, width]`` in gray and ``[height, width, channels]`` else (channels first for the layout chw); a
        missing axis of one channel is added, and a flat input gets the same numbers row by row.
    Errors: UnfitImage.
    """
    pixels = _decoded(path, options, shape)
    if options.layout == "chw" and pixels.ndim == 3:
        pixels = np.moveaxis(pixels, -1, 0)
    fitted = pixels if shape is None else _fitted(path, pixels, shape)
    if options.scale is not None or options.offset is not None:
        fitted = fitted * (1.0 if options.scale is None else options.scale) + (options.offset or 0.0)
    if dtype is None or fitted.dtype == dtype:
        return fitted
    changed = fitted.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(changed, fitted):
        raise UnfitImage(f"{path}: the input is {dtype}, and the pixels as scaled are not; leave out --image-scale")
    return changed


def _decoded(path: Path, options: ImageOptions, shape: Shape | None) -> np.ndarray[Any, Any]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # An image that unpacks to gigabytes is refused, not warned about.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=("PNG", "JPEG")) as opened:
                image = opened.convert(options.mode) if options.mode is not None else opened
                if image.mode not in _PLAIN:
                    raise UnfitImage(f"{path} has pixels of mode {image.mode}: say --image-mode L, RGB or RGBA")
                size = _size(path, options, shape)
                if size is not None:
                    image = image.resize(size, Image.Resampling[_RESAMPLING[options.resampling]])
                return np.asarray(image)
    except (OSError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnfitImage(f"{path} can't be read as a PNG or JPEG: {error}") from error


_RESAMPLING = {"nearest": "NEAREST", "box": "BOX", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "lanczos": "LANCZOS"}


def _size(path: Path, options: ImageOptions, shape: Shape | None) -> tuple[int, int] | None:
    if options.size is None or isinstance(options.size, tuple):
        return options.size
    axes = tuple(shape or ())[-2:] if options.layout == "chw" else tuple(shape or ())[:2]
    if len(axes) != 2 or None in axes:
        raise UnfitImage(f"{path}: the model's input is {_shown(shape)}, which fixes no size: say --image-size WxH")
    height, width = axes
    assert height is not None
    assert width is not None
    return width, height


def _fitted(path: Path, pixels: np.ndarray[Any, Any], shape: Shape) -> np.ndarray[Any, Any]:
    """Return the same numbers in the input's shape, where nothing but an axis of one or flatness differs."""
    candidates = [pixels]
    if pixels.ndim == 2:
        candidates += [pixels[..., None], pixels[None]]
    if len(shape) == 1:
        candidates.append(pixels.reshape(-1))
    for candidate in candidates:
        if len(shape) == candidate.ndim and all(w in (None, n) for w, n in zip(shape, candidate.shape, strict=True)):
            return candidate
    raise UnfitImage(
        f"{path}: the model's input is {_shown(shape)}, and the image {_shown(pixels.shape)}; --image-size changes the "
        "size (WxH, or model for the input's), --image-mode the channels, --image-layout chw puts them first"
    )


def _shown(shape: Shape | None) -> str:
    return "of any shape" if shape is None else str(["?" if size is None else size for size in shape]).replace("'", "")
