"""Measurements without HTTP: ``python -m benchmarks`` runs them all.

::

    core_overhead    CPU of the batching core for each row
    vectorized_mlp   the digits network at each batch size and executor, against the same batched by hand
    vectorizer       all example models against loops, stock pfor and graphs that were batched by hand
    by_hand          the example models, batched by hand
"""

from __future__ import annotations

__all__: list[str] = []
