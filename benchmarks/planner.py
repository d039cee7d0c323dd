"""The planner in virtual time: waiting over the best that hindsight can do, beside the policies of other servers.

Cost curves of several shapes; Poisson arrivals, bursts of eight rows and a day that comes and goes, at three loads.
Callers who wait for their answer before they send again have no optimum in hindsight, as what they send depends on
what they get: there, waiting is compared with the best policy's. Prints two tables and draws the first. Run it with
``python -m benchmarks.planner``; it takes a minute and no other core.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from server.batching import CostTable
from server.batching.simulation import (
    ClosedLoop,
    Policy,
    Trace,
    batch_down,
    bursts,
    diurnal,
    minimize_cost_per_row,
    optimal_waiting_s,
    pad_up,
    planned,
    poisson,
    simulate,
    singles,
    window,
)

__all__ = ["main"]

_US = 1e-6
#: Microseconds by bucket: measured (MLP, LSTM of 64 steps under XLA), and made up where a shape has no example.
_CURVES = {
    "mlp": {1: 32, 2: 38, 4: 38, 8: 44, 16: 55, 32: 90, 64: 160},
    "lstm": {1: 680, 2: 1140, 4: 1515, 8: 2700, 16: 5170, 32: 9760, 64: 17860},
    "fixed cost": {1: 1000, 2: 1010, 4: 1020, 8: 1040, 16: 1080, 32: 1160, 64: 1320},
    "linear": {1: 100, 2: 200, 4: 400, 8: 800, 16: 1600, 32: 3200, 64: 6400},
    "stepped": {1: 500, 2: 500, 4: 500, 8: 500, 16: 1500, 32: 1500, 64: 3000},
    "non-monotone": {1: 100, 2: 180, 4: 160, 8: 400, 16: 380, 32: 900, 64: 2000},
}
_TRACES: Mapping[str, Callable[..., Trace]] = {
    "Poisson": poisson,
    "bursts": partial(bursts, n_rows=8),
    "diurnal": diurnal,
}
_LOADS = (0.3, 0.6, 0.9)
_CALLERS = (8, 32, 128)
_POLICIES: Mapping[str, Policy] = {
    "planner": planned,
    "PAD_UP": pad_up,
    "BATCH_DOWN": batch_down,
    "MINIMIZE": minimize_cost_per_row,
    "2 ms": window(2e-3),
    "10 ms": window(10e-3),
    "singles": singles,
}
_SEEDS = (5, 6, 7)


def _costs(curve: str) -> CostTable:
    return CostTable({rows: cost * _US for rows, cost in _CURVES[curve].items()}).prepare()


def _regrets(n_rows: int) -> dict[tuple[str, str, float], dict[str, float]]:
    """Return by curve, trace and load how much longer rows wait than they need, for each policy."""
    found: dict[tuple[str, str, float], dict[str, float]] = {}
    for curve in _CURVES:
        costs = _costs(curve)
        for load in _LOADS:
            rate = load / costs.row_s
            for name, trace in _TRACES.items():
                regrets: dict[str, list[float]] = {policy: [] for policy in _POLICIES}
                for seed in _SEEDS:
                    times_s = trace(random.Random(seed), rate=rate, length_s=n_rows / rate).times_s
                    least_s = optimal_waiting_s(costs, times_s) / len(times_s)
                    for policy, choose in _POLICIES.items():
                        regrets[policy].append(simulate(choose, costs, Trace(times_s)).mean_s / least_s - 1)
                found[curve, name, load] = {policy: statistics.mean(values) for policy, values in regrets.items()}
    return found


def _closed_loops() -> dict[tuple[str, int], dict[str, float]]:
    """Return by curve and callers how much longer rows wait than under the best of the policies."""
    found = {}
    for curve in _CURVES:
        costs = _costs(curve)
        for n_callers in _CALLERS:
            length_s = 200 * costs.clear_s(n_callers)
            waits = {
                policy: simulate(
                    choose,
                    costs,
                    ClosedLoop(random.Random(1), n_callers=n_callers, think_s=5 * costs.quickest_s, length_s=length_s),
                ).mean_s
                for policy, choose in _POLICIES.items()
            }
            found[curve, n_callers] = {policy: wait / min(waits.values()) - 1 for policy, wait in waits.items()}
    return found


def _print(title: str, rows: Mapping[Any, Mapping[str, float]]) -> None:
    print(f"{title}\n{'':<34}" + "".join(f"{policy:>12}" for policy in _POLICIES))
    for key, regrets in rows.items():
        print(f"{', '.join(map(str, key)):<34}" + "".join(f"{regret:>12.1%}" for regret in regrets.values()))
    means = [statistics.mean(regrets[policy] for regrets in rows.values()) for policy in _POLICIES]
    print(f"{'mean':<34}" + "".join(f"{mean:>12.1%}" for mean in means))


def _draw(rows: Mapping[Any, Mapping[str, float]], path: Path) -> None:
    """Draw each policy's regrets, the smallest first: a policy whose line lies below another's is better."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for policy in _POLICIES:
        axes.plot(sorted(100 * max(regrets[policy], 1e-4) for regrets in rows.values()), label=policy)
    axes.set(yscale="log", xlabel="case, ordered for each policy", ylabel="waiting over the best in hindsight, %")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"\n{path}")


def main() -> None:
    """Print the tables and draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("--rows", type=int, default=300, help="rows of each trace (default: 300)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="where the picture goes")
    options = parser.parse_args()
    regrets = _regrets(options.rows)
    _print("Waiting over the best in hindsight: costs, arrivals, load", regrets)
    print()
    _print("Waiting over the best policy: costs, callers who wait for their answer", _closed_loops())
    _draw(regrets, options.out / "planner.png")


if __name__ == "__main__":
    main()
