"""Paths of predictions: which model, which version, which verb, and in which protocol.

The fixed words of TensorFlow Serving's paths are case-insensitive, names and labels are not. Those of the Open
Inference Protocol are as they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from server.web.errors import VersionMalformed

__all__ = ["VerbPath", "canonical_path", "parse_verb_path", "version_number"]

_VERB_PATH = re.compile(
    r"/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?:(?P<verb>[^/:]*)",
    re.IGNORECASE,
)
_INFER_PATH = re.compile(
    r"/v2/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?/infer"
)
#: Words by the segment that they can be in, after /v1/models/{name}.
_WORDS = frozenset({"versions", "labels", "metadata", "status", "certificate", "costs", "history", "plan"})
#: 18 digits fit into 64 bits.
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class VerbPath:
    """A path that ends in a verb, such as ``/v1/models/digits/versions/3:predict``. ``verb`` is in small letters.

    ``is_oip``: it is one of the Open Inference Protocol, ``/v2/models/digits/versions/3/infer``, whose verb is
    ``predict`` too.
    """

    model: str
    version: str | None
    label: str | None
    verb: str
    is_oip: bool = False

    @property
    def text(self) -> str:
        """The path, as it is usually written."""
        which = "" if self.version is None else f"/versions/{self.version}"
        which = which if self.label is None else f"/labels/{self.label}"
        if self.is_oip:
            return f"/v2/models/{self.model}{which}/infer"
        return f"/v1/models/{self.model}{which}:{self.verb}"


def parse_verb_path(path: str) -> VerbPath | None:
    """Return the parts of a path with a verb; None for every other path."""
    match = _INFER_PATH.fullmatch(path)
    if match is not None:
        return VerbPath(match["model"], match["version"], match["label"], "predict", is_oip=True)
    match = _VERB_PATH.fullmatch(path)
    if match is None:
        return None
    return VerbPath(match["model"], match["version"], match["label"], match["verb"].lower())


def canonical_path(path: str) -> str:
    """Return the path with its fixed words in small letters, as the routes spell them."""
    segments = path.split("/")
    if [segment.lower() for segment in segments[1:3]] != ["v1", "models"]:
        return path
    segments[1:3] = ["v1", "models"]
    # .../{name}/versions/{n}/status: words stand at every second place after the name, verbs after a colon.
    for index in range(4, len(segments), 2):
        if segments[index].lower() in _WORDS:
            segments[index] = segments[index].lower()
    last, colon, verb = segments[-1].rpartition(":")
    if colon:
        segments[-1] = last + colon + verb.lower()
    return "/".join(segments)


def version_number(text: str) -> int:
    """Return the version that a path names. Errors: VersionMalformed."""
    if not _VERSION.fullmatch(text):
        raise VersionMalformed(text)
    return int(text)
