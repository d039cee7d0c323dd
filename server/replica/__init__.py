"""The server as one of many: an engine with its own queue and buckets, that another system starts, routes to and stops.

``EmbeddedServer`` is a whole server as an ASGI application, for whoever has a port and an event loop already. ``build``
makes a Ray Serve application of such replicas, over one store that they all follow; Ray is imported by it alone.
"""

from __future__ import annotations

from server.replica.application import Arguments, build
from server.replica.autoscaling import replicas_for, scale_by_rows
from server.replica.door import Door, doors
from server.replica.embedded import EmbeddedServer
from server.replica.engine_replica import EngineReplica
from server.replica.environment import ray_environment

__all__ = [
    "Arguments",
    "Door",
    "EmbeddedServer",
    "EngineReplica",
    "build",
    "doors",
    "ray_environment",
    "replicas_for",
    "scale_by_rows",
]
