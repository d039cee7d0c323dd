"""The one table of what each route and each gRPC method asks of its caller. What is not in it is not served.

Every name for the same thing has the same rule: TensorFlow Serving's paths, the Open Inference Protocol's and gRPC's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from server.rights import Scope

__all__ = ["ASK", "MANAGE", "OPEN", "PREDICT", "READ", "RPC_RULES", "Rule", "route_rule", "unruled"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Which scopes let somebody in, any of them; none: everybody comes in.

    ``is_open_with_predictions``: everybody comes in where predictions are not protected. ``needs_all_models``: a token
    for some of the models is not enough, as what is told can't be divided.
    """

    scopes: frozenset[Scope]
    is_open_with_predictions: bool = False
    needs_all_models: bool = False
    #: Whether it counts for the rate of requests other than predictions.
    is_counted: bool = False
    #: Those of the scopes.
    bits: int = field(init=False)

    def __post_init__(self) -> None:
        """Gather the bits."""
        object.__setattr__(self, "bits", sum(scope.bit for scope in self.scopes))

    @property
    def does(self) -> str:
        """What it is about, in a word for sentences."""
        return "use" if len(self.scopes) > 1 else next(iter(self.scopes), "use")


OPEN = Rule(frozenset())
PREDICT = Rule(frozenset({Scope.PREDICT}), is_open_with_predictions=True)
#: What a client of a model has to know: whether it answers, and what its inputs are called.
ASK = Rule(frozenset(Scope), is_open_with_predictions=True)
READ = Rule(frozenset({Scope.READ}), is_counted=True)
#: Numbers of all models in one text.
SCRAPE = Rule(frozenset({Scope.READ}), is_open_with_predictions=True, needs_all_models=True)
MANAGE = Rule(frozenset({Scope.MANAGE}), is_counted=True)
#: Who has any right at all; it is never open, as the answer is who he is.
KNOWN = Rule(frozenset(Scope), is_counted=True)

_V1 = "/v1/models/{model}"
_V1_VERSION = f"{_V1}/versions/{{version}}"
_V1_LABEL = f"{_V1}/labels/{{label}}"
_V2 = "/v2/models/{model}"
_V2_VERSION = f"{_V2}/versions/{{version}}"

_ROUTES: dict[tuple[str, str], Rule] = {
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/v2"): OPEN,
    ("GET", "/v2/health/live"): OPEN,
    ("GET", "/v2/health/ready"): OPEN,
    ("GET", "/metrics"): SCRAPE,
    # The console's files, without any data; and who looks at them.
    ("GET", "/"): OPEN,
    ("GET", "/console/{file}"): OPEN,
    ("GET", "/v1/console/session"): KNOWN,
    # What clients of a model ask.
    ("GET", _V1): ASK,
    ("GET", _V1_VERSION): ASK,
    ("GET", _V1_LABEL): ASK,
    ("GET", f"{_V1}/metadata"): ASK,
    ("GET", f"{_V1_VERSION}/metadata"): ASK,
    ("GET", f"{_V1_LABEL}/metadata"): ASK,
    ("GET", "/v2/models/stats"): ASK,
    **{("GET", path + tail): ASK for path in (_V2, _V2_VERSION) for tail in ("", "/ready", "/config", "/stats")},
    # What operators look at.
    ("GET", "/v1/models"): READ,
    ("GET", f"{_V1_VERSION}/status"): READ,
    ("GET", f"{_V1}/certificate"): READ,
    ("GET", f"{_V1_VERSION}/certificate"): READ,
    ("GET", f"{_V1}/costs"): READ,
    ("GET", f"{_V1_VERSION}/costs"): READ,
    ("GET", f"{_V1_VERSION}/plan"): READ,
    ("GET", f"{_V1_VERSION}/shadow"): READ,
    ("GET", "/v1/console/live"): READ,
    ("GET", "/v1/debug/batches"): READ,
    ("GET", "/v1/status"): READ,
    ("POST", "/v2/repository/index"): READ,
    ("GET", f"{_V1}/labels"): READ,
    ("GET", f"{_V1}/history"): READ,
    # What changes something.
    ("PUT", _V1_LABEL): MANAGE,
    ("DELETE", _V1_LABEL): MANAGE,
    ("POST", f"{_V1}:rollback"): MANAGE,
    ("PUT", _V1): MANAGE,
    ("POST", "/v1/uploads"): MANAGE,
    **{(method, "/v1/uploads/{upload}"): MANAGE for method in ("GET", "PATCH", "DELETE")},
    ("DELETE", _V1): MANAGE,
    ("DELETE", _V1_VERSION): MANAGE,
    ("POST", f"{_V1_VERSION}:activate"): MANAGE,
    ("POST", f"{_V1_VERSION}:shadow"): MANAGE,
    ("POST", "/v2/repository/models/{model}/load"): MANAGE,
    ("POST", "/v2/repository/models/{model}/unload"): MANAGE,
}

_OIP = "/inference.GRPCInferenceService/"
_TFS = "/tensorflow.serving."

RPC_RULES: dict[str, Rule] = {
    f"{_OIP}ServerLive": OPEN,
    f"{_OIP}ServerReady": OPEN,
    f"{_OIP}ServerMetadata": OPEN,
    "/grpc.health.v1.Health/Check": OPEN,
    "/grpc.health.v1.Health/Watch": OPEN,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": OPEN,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": OPEN,
    f"{_OIP}ModelInfer": PREDICT,
    f"{_OIP}ModelStreamInfer": PREDICT,
    **{f"{_TFS}PredictionService/{name}": PREDICT for name in ("Predict", "Classify", "Regress", "MultiInference")},
    f"{_OIP}ModelReady": ASK,
    f"{_OIP}ModelMetadata": ASK,
    f"{_OIP}ModelConfig": ASK,
    f"{_OIP}ModelStatistics": ASK,
    f"{_TFS}PredictionService/GetModelMetadata": ASK,
    f"{_TFS}ModelService/GetModelStatus": ASK,
    f"{_OIP}RepositoryIndex": READ,
    f"{_OIP}RepositoryModelLoad": MANAGE,
    f"{_OIP}RepositoryModelUnload": MANAGE,
    f"{_TFS}ModelService/HandleReloadConfigRequest": MANAGE,
}


def route_rule(method: str, path: str) -> Rule:
    """Return the rule of a route, by its method and the form of its path. Errors: KeyError."""
    return _ROUTES[method, path]


def unruled(routes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those of some routes that have no rule."""
    return [route for route in routes if route not in _ROUTES]
