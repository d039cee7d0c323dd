"""The certificate tells exactly which ops loop: 60 functions and more, against the graphs that TensorFlow executes.

``python -m tests.vectorizer.probe_functions.comparison`` prints precision and recall as a table.
"""

from __future__ import annotations

import pytest

from tests.vectorizer.probe_functions import looped
from tests.vectorizer.probe_functions.comparison import GROUPS, built, looping
from tests.vectorizer.probe_functions.probe import ProbeFunction

PROBES = [probe for module in GROUPS.values() for probe in module.PROBES]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_certificate_names_the_ops_that_loop_and_no_others(probe: ProbeFunction) -> None:
    vectorized = built(probe)
    named = {record.op for record in vectorized.certificate.looped}
    true = looping(vectorized)
    assert named == true
    assert bool(true) == (probe in looped.PROBES)
    for record in vectorized.certificate.looped:
        assert record.reason
        assert record.fix


def test_there_are_60_functions_of_which_a_dozen_loop() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES) >= 60
    assert len(looped.PROBES) >= 12
