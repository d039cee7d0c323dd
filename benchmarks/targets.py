"""What a run must reach, and whether it did."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report import Line, geometric_mean

__all__ = ["derivative_verdicts", "forward_verdicts"]

#: Batch sizes that the targets speak of.
_JUDGED_ROWS = (8, 64)


def forward_verdicts(lines: Sequence[Line]) -> list[str]:
    """Judge forward models against code batched by hand, DyNet, and stock ``tf.vectorized_map``."""
    judged = [line for line in lines if line.rows in _JUDGED_ROWS]
    verdicts = []
    by_hand = {_name(line): 1 / multiple for line in judged if (multiple := line.multiple("by hand")) is not None}
    if by_hand:
        mean, worst = geometric_mean(list(by_hand.values())), max(by_hand, key=by_hand.__getitem__)
        verdicts += [
            _said(mean <= 1.0, f"{mean:.2f} times the time of the better version by hand in geometric mean (1.0)"),
            _said(by_hand[worst] <= 1.15, f"{by_hand[worst]:.2f} times at worst, {worst} (1.15)"),
        ]
    autobatch = {_name(line): m for line in judged if (m := line.multiple("dynet autobatch")) is not None}
    if autobatch:
        worst = min(autobatch, key=autobatch.__getitem__)
        verdicts.append(
            _said(
                autobatch[worst] >= 3, f"{autobatch[worst]:.2f} times DyNet's examples a second at least, {worst} (3)"
            )
        )
    stock = {_name(line): m for line in judged if (m := line.multiple("vectorized_map")) is not None}
    if stock:
        worst = min(stock, key=stock.__getitem__)
        verdicts.append(
            _said(1 / stock[worst] <= 1.02, f"{1 / stock[worst]:.2f} times stock pfor's time at worst, {worst} (1.02)")
        )
    for name in ("lstm, 8 rows", "mobilenet_v2, 64 rows"):
        if name in stock:
            verdicts.append(_said(stock[name] >= 2, f"{stock[name]:.2f} times as fast as stock pfor, {name} (2)"))
    return verdicts


def derivative_verdicts(lines: Sequence[Line]) -> list[str]:
    """Judge the paper's configurations against a loop, and its derivatives against stock pfor."""
    verdicts = []
    looped = {line.model: m for line in lines if (m := line.multiple("while_loop")) is not None}
    if looped:
        worst = min(looped, key=looped.__getitem__)
        verdicts.append(
            _said(looped[worst] >= 1, f"{looped[worst]:.2f} times as fast as while_loop at worst, {worst} (1)")
        )
    stock = [
        m
        for line in lines
        if any(kind in line.model for kind in ("grad", "jacobian"))
        and (m := line.multiple("vectorized_map")) is not None
    ]
    if stock:
        mean = geometric_mean(stock)
        verdicts.append(
            _said(
                mean >= 1.5, f"{mean:.2f} times as fast as stock pfor in geometric mean, gradients and Jacobians (1.5)"
            )
        )
    return verdicts


def _name(line: Line) -> str:
    return f"{line.model}, {line.rows} rows"


def _said(is_met: bool, what: str) -> str:  # noqa: FBT001 - a verdict is its subject
    return f"- {'met' if is_met else 'MISSED'}: {what}"
