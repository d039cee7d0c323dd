"""The configurations that the paper measures, each as a function of one example.

Source: A. Agarwal, "Static Automatic Batching In TensorFlow", ICML 2019, and the benchmarks of its code.
"""

from __future__ import annotations

from benchmarks.paper import fully_connected, maps_and_loops, mnist, recurrent, vgg
from benchmarks.paper.configuration import Configuration, per_example

__all__ = ["CONFIGURATIONS", "Configuration", "per_example"]

#: In the order of the report.
CONFIGURATIONS: tuple[Configuration, ...] = (
    *fully_connected.CONFIGURATIONS,
    *recurrent.CONFIGURATIONS,
    *mnist.CONFIGURATIONS,
    *maps_and_loops.CONFIGURATIONS,
    *vgg.CONFIGURATIONS,
)
