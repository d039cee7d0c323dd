"""Measurements without HTTP: ``python -m benchmarks`` runs them all.

::

    core_overhead      CPU of the batching core for each row
    planner            waiting under the planner and other policies, in virtual time
    forward            forward models against loops, stock pfor, code batched by hand, JAX and DyNet
    paper_list         the paper's configurations, derivatives and others, against a loop and stock pfor

    workloads          the forward models: for one example, and the same batched by hand
    paper              the paper's configurations
    in_jax, in_dynet   the forward models in other libraries, each run in a process of its own (worker)
"""

from __future__ import annotations

__all__: list[str] = []
