"""Paths with verbs, and the spelling of fixed words."""

from __future__ import annotations

import pytest

from server.web.errors import VersionMalformed
from server.web.paths import VerbPath, canonical_path, parse_verb_path, version_number


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/v1/models/m:predict", VerbPath("m", None, None, "predict")),
        ("/V1/MODELS/M:Predict", VerbPath("M", None, None, "predict")),
        ("/v1/models/m/versions/12:predict", VerbPath("m", "12", None, "predict")),
        ("/v1/models/m/labels/Best:predict", VerbPath("m", None, "Best", "predict")),
        ("/v1/models/versions:predict", VerbPath("versions", None, None, "predict")),
        ("/v1/models/m:", VerbPath("m", None, None, "")),
        ("/v1/models/m", None),
        ("/v1/models/:predict", None),
        ("/v1/models/a/b:predict", None),
        ("/v1/models/m:predict/", None),
        ("/v1/models/m:predict:predict", None),
        ("/v1/models/m/versions/:predict", None),
        ("/v2/models/m:predict", None),
        ("/v1/models/m/infer", None),
        ("/v1/models/m:infer", VerbPath("m", None, None, "infer")),
        ("/v2/models/m/infer", VerbPath("m", None, None, "predict", is_oip=True)),
        ("/v2/models/m/versions/12/infer", VerbPath("m", "12", None, "predict", is_oip=True)),
        ("/v2/models/m/labels/Best/infer", VerbPath("m", None, "Best", "predict", is_oip=True)),
        ("/v2/models/m/Infer", None),
        ("/v2/models/m/infer/", None),
        ("/v2/models//infer", None),
    ],
)
def test_a_path_with_a_verb_is_taken_apart(path: str, parts: VerbPath | None) -> None:
    assert parse_verb_path(path) == parts


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("/V1/Models", "/v1/models"),
        ("/V1/Models/Versions/VERSIONS/3/Status", "/v1/models/Versions/versions/3/status"),
        ("/v1/models/M/LABELS/Metadata/METADATA", "/v1/models/M/labels/Metadata/metadata"),
        ("/v1/models/M/versions/3:ACTIVATE", "/v1/models/M/versions/3:activate"),
        ("/v2/models/M", "/v2/models/M"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_fixed_words_are_spelled_as_the_routes_spell_them(path: str, canonical: str) -> None:
    assert canonical_path(path) == canonical


def test_versions_are_positive_numbers() -> None:
    assert version_number("42") == 42
    for text in ("0", "-1", "1.0", "", " 1", "١", "1" * 19):
        with pytest.raises(VersionMalformed):
            version_number(text)
