"""The HTTP service: predictions in TensorFlow Serving's form, management, health and metrics."""

from __future__ import annotations

from server.web.app import create_app
from server.web.hot_lane import HotLaneProtocol
from server.web.interfaces import Answer, Catalog, ServedModel, Ticket
from server.web.predict import PredictCall, Predictor
from server.web.status import Reply, error_reply, status_of

__all__ = [
    "Answer",
    "Catalog",
    "HotLaneProtocol",
    "PredictCall",
    "Predictor",
    "Reply",
    "ServedModel",
    "Ticket",
    "create_app",
    "error_reply",
    "status_of",
]
