"""Which inputs travel with an example, and in which form."""

from __future__ import annotations

import json

import pytest

from rowwise._metadata import RemoteSignature
from rowwise._predictions import encode_instances
from rowwise.errors import WrongInputs

SEEDED = RemoteSignature(inputs=("x", "seed"), optional=frozenset({"seed"}), outputs={"y": None})


def test_optional_input_may_be_left_out_sent_or_both() -> None:
    body = encode_instances("noisy", SEEDED, [[1.0, 2.0], {"x": [3.0, 4.0]}, {"seed": 5, "x": [5.0, 6.0]}])
    assert json.loads(body) == {"instances": [[1.0, 2.0], [3.0, 4.0], {"x": [5.0, 6.0], "seed": 5}]}


@pytest.mark.parametrize("example", [{"seed": 5}, {"x": [1.0], "sed": 5}])
def test_optional_input_excuses_no_other(example: dict[str, object]) -> None:
    with pytest.raises(WrongInputs, match="expected 'x'"):
        encode_instances("noisy", SEEDED, [example])


def test_metadata_tells_which_inputs_are_optional() -> None:
    described = {"inputs": {"x": {}, "seed": {}}, "outputs": {"y": {"dtype": "DT_FLOAT"}}}
    metadata = {"signature_def": {"signature_def": {"serving_default": described}}}
    assert RemoteSignature.from_metadata({"metadata": metadata}).required == ("x", "seed")
    signature = RemoteSignature.from_metadata({"metadata": {**metadata, "optional_inputs": ["seed"]}})
    assert signature.required == ("x",)
