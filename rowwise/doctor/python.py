"""The Python that runs this."""

from __future__ import annotations

from rowwise.doctor.finding import Finding, fine, wrong

__all__ = ["python_finding"]

_NEEDED = (3, 11)


def python_finding(version: tuple[int, ...], executable: str) -> Finding:
    """Return whether it is the Python that the private interfaces of TensorFlow are tested on."""
    told = ".".join(map(str, version[:3]))
    if version[:2] == _NEEDED:
        return fine("python", f"Python {told} ({executable})")
    return wrong(
        "python",
        f"Python {told} ({executable}), where 3.11 is needed",
        why="the interfaces of TensorFlow that the vectorizer and the engine use are tested on 3.11 alone",
        to_do="make a virtual environment with Python 3.11 and install Rowwise in it",
    )
