"""What the padding of a batch may hold.

The server pads with zeros (empty strings), and a bucket whose answers differ from the unpadded ones is refused by the
parity check. Whether other values would matter is worth knowing and no fault: ``sum(x) / length`` needs the zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vectorizer.certificate import Padding
from vectorizer.errors import ParityError
from vectorizer.probes import Probe, ProbeKind
from vectorizer.vectorized import Bucket

__all__ = ["judge_padding"]


def judge_padding(
    answers: Callable[..., list[list[np.ndarray]]],
    probes: Sequence[Probe],
    bucket: Bucket,
    is_right: Callable[[Probe, Sequence[np.ndarray]], bool],
) -> Padding:
    """Run one batch of padded probes with other values than zeros in the padding, and compare."""
    padded = [probe for probe in probes if probe.lengths != bucket.lengths and probe.kind is not ProbeKind.EXTREME]
    if not padded:
        return Padding.NONE
    # From all over the list, which begins with the user's own and the empty ones.
    rows = [padded[slot * max(1, len(padded) // bucket.rows) % len(padded)] for slot in range(bucket.rows)]
    try:
        got = answers(rows, with_garbage=True)
    except ParityError:
        return Padding.ZEROS
    right = all(is_right(probe, each) for probe, each in zip(rows, got, strict=True))
    return Padding.IGNORED if right else Padding.ZEROS
