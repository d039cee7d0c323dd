"""A picture of a run: how many times as fast as each contender we are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import COLUMNS, Line

__all__ = ["draw"]


def draw(lines: Sequence[Line], *, title: str, path: Path) -> None:
    """Draw one panel for each batch size, with a mark for each contender on a logarithmic axis."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    sizes = sorted({line.rows for line in lines})
    names = list(dict.fromkeys(line.model for line in lines))
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(3 + 3.2 * len(sizes), 1.6 + 0.34 * len(names)), sharey=True, squeeze=False
    )
    markers = dict(zip(COLUMNS, "os^v<>Dd", strict=True))
    for axis, size in zip(axes[0], sizes, strict=True):
        for name in COLUMNS:
            points = [
                (multiple, names.index(line.model))
                for line in lines
                if line.rows == size and (multiple := line.multiple(name)) is not None
            ]
            if points:
                axis.plot(*zip(*points, strict=True), markers[name], label=name, markersize=6, alpha=0.8)
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_title(f"{size} rows", fontsize=10)
        axis.grid(visible=True, axis="both", linewidth=0.3)
        axis.set_xlabel("time / ours")
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    handles: dict[str, object] = {}
    for axis in axes[0]:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=len(handles), fontsize=8, frameon=False)
    figure.suptitle(f"{title}: right of the line, ours is faster", fontsize=11)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
