"""Histograms that count several observations at once show what prometheus_client's own would."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from server.quick_histogram import QuickHistogram

BOUNDS = (0.001, 0.25, 1.0, 10.0)


def lines(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


def test_it_shows_what_the_one_of_the_library_shows() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    known = Histogram("wait", "How long.", ("model",), buckets=BOUNDS, registry=theirs)
    quick = QuickHistogram("wait", "How long.", ("model",), bounds=BOUNDS)
    ours.register(quick)
    random_numbers = random.Random(0)
    for _ in range(300):
        # Bounds themselves too: they belong to their own bucket.
        value = random_numbers.choice([*BOUNDS, 0.0, 0.5, 11.0, random_numbers.uniform(0, 12)])
        known.labels("a").observe(value)
        quick.labels("a").observe(value)
    known.labels("b").observe(0.5)
    known.labels("b").observe(0.5)
    quick.labels("b").observe(0.5, 2)
    shown = lines(ours)
    assert [line for line in shown if "_sum" not in line] == [line for line in lines(theirs) if "_sum" not in line]
    assert 'wait_sum{model="b"} 1.0' in shown


def test_removed_labels_are_not_shown() -> None:
    registry = CollectorRegistry()
    quick = QuickHistogram("wait", "How long.", ("model",), bounds=BOUNDS)
    registry.register(quick)
    quick.labels("a").observe(1.0)
    quick.remove("a")
    quick.remove("never there")
    assert 'model="a"' not in generate_latest(registry).decode()
