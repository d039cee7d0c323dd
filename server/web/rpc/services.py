"""All services and their methods, by the paths that callers ask for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from server.web.front import Front
from server.web.interfaces import Catalog
from server.web.rpc.call import Method, not_offered
from server.web.rpc.health import HealthService
from server.web.rpc.oip import OipService
from server.web.rpc.predictions import Predictions
from server.web.rpc.reflection import ReflectionService
from server.web.rpc.tfs import TfsServices
from server.web.scopes import RPC_RULES

__all__ = ["Services"]


class Services:
    """Finds who answers a path such as ``/inference.GRPCInferenceService/ModelInfer``."""

    def __init__(self, front: Front, catalog: Catalog, leaving: asyncio.Event) -> None:
        predictions = Predictions(front)
        tfs = TfsServices(catalog, predictions)
        #: Methods by service.
        self._services: dict[str, dict[str, Method]] = {
            "inference.GRPCInferenceService": OipService(front, catalog, predictions).methods,
            "tensorflow.serving.PredictionService": tfs.prediction_methods,
            "tensorflow.serving.ModelService": tfs.model_methods,
        }
        names = self._services.keys()
        self._services["grpc.health.v1.Health"] = HealthService(catalog, names, leaving).methods
        for version in ("v1", "v1alpha"):
            self._services[f"grpc.reflection.{version}.ServerReflection"] = ReflectionService(version, names).methods
        #: Those of each service, with their rules. Errors: KeyError for one without a rule: nobody could say who may.
        self._services = {
            service: {name: replace(method, rule=RPC_RULES[f"/{service}/{name}"]) for name, method in methods.items()}
            for service, methods in self._services.items()
        }

    @property
    def paths(self) -> list[str]:
        """The paths of all methods."""
        return [f"/{service}/{name}" for service, methods in self._services.items() for name in methods]

    def find(self, path: str) -> Method:
        """Return the method of a path, or one that says that there is none."""
        _, _, rest = path.partition("/")
        service, _, name = rest.partition("/")
        methods = self._services.get(service)
        if methods is None:
            return not_offered(f"no service {service[:80]!r} is here; there are {', '.join(self._services)}")
        known = ", ".join(methods)
        return methods.get(name) or not_offered(f"{service} has no method {name[:60]!r} here; it has {known}")
