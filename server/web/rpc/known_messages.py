"""Whom the messages of a method ask, and how they are read: most are laid out as one that came before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from server.protocol import BodyFormat
from server.protocol.oip_proto import InferCall, learn_infer
from server.protocol.proto_layout import KnownLayouts, Layout
from server.protocol.proto_many import TensorFormat, TensorMessage
from server.protocol.tfs_proto import PredictMessage, learn_predict
from server.web.paths import VerbPath

__all__ = ["KnownMessages", "Target"]

#: Whom a message asks, the same object for messages that ask the same, and how it is read.
Target: TypeAlias = tuple[VerbPath, BodyFormat]

#: Past it, all are forgotten: strangers can make up names.
_MAX_PATHS = 1_024


class _Message(TensorMessage, Protocol):
    """A message of which is known whom it asks."""

    @property
    def model(self) -> str:
        """A model's name."""

    @property
    def version(self) -> str | None:
        """Which version; None: it does not say."""

    @property
    def label(self) -> str | None:
        """Which label; None: it does not say."""


class KnownMessages:
    """Those of one method. ``read`` makes a message of bytes, ``learn`` finds its layout."""

    def __init__(self, read: Callable[[bytes], _Message], learn: Callable[[bytes], Layout | None]) -> None:
        self._read = read
        self._learn = learn
        self._layouts: KnownLayouts[Target] = KnownLayouts()
        self._paths: dict[tuple[str, str | None, str | None], VerbPath] = {}
        self._unknown = TensorFormat(read)

    @classmethod
    def of_infer(cls) -> KnownMessages:
        """Return those of ModelInfer, none yet."""
        return cls(InferCall, learn_infer)

    @classmethod
    def of_predict(cls) -> KnownMessages:
        """Return those of Predict, none yet."""
        return cls(PredictMessage, learn_predict)

    def target(self, body: bytes) -> Target:
        """Return whom a message asks, and how it is read. Errors: those of reading whom it asks."""
        found = self._layouts.find(body)
        if found is not None:
            return found
        asks = self._read(body)
        path = self._path((asks.model, asks.version, asks.label))
        layout = self._learn(body)
        if layout is None:
            return path, self._unknown
        target = path, TensorFormat(self._read, layout)
        self._layouts.keep(layout, target)
        return target

    def _path(self, asked: tuple[str, str | None, str | None]) -> VerbPath:
        path = self._paths.get(asked)
        if path is None:
            if len(self._paths) >= _MAX_PATHS:
                self._paths.clear()
            path = self._paths[asked] = VerbPath(*asked, "predict")
        return path
