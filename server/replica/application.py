"""The Ray Serve application: replicas of an embedded server, scaled by the rows that they hold."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from server.replica.autoscaling import scale_by_rows
from server.replica.embedded import EmbeddedServer
from server.replica.engine_replica import EngineReplica

__all__ = ["Arguments", "build"]


class Arguments(BaseModel):
    """What ``build`` takes; whatever it does not name is a setting of the server, such as ``store``."""

    model_config = ConfigDict(extra="allow")

    #: How many replicas; None: as many as the load asks for, between the next two.
    replicas: Annotated[int, Field(ge=1)] | None = None
    min_replicas: Annotated[int, Field(ge=1)] = 1
    max_replicas: Annotated[int, Field(ge=1)] = 4
    #: Rows that a replica should hold on average, waiting and running. ``rowwise capacity`` prints it for a model.
    target_rows: Annotated[float, Field(gt=0)] = 32.0
    #: Most requests that Ray Serve lets into a replica at once. Far more than the largest batch: a batch is formed of
    #: what is inside, and what waits outside fills none. The server's own bound is ``queue_rows``.
    max_ongoing_requests: Annotated[int, Field(ge=1)] = 2_048
    #: Most requests that wait at a proxy for a replica with room; more: 503.
    max_queued_requests: Annotated[int, Field(ge=-1)] = 4_096
    #: Cores and accelerators that Ray counts for a replica.
    num_cpus: Annotated[float, Field(ge=0)] = 1.0
    num_gpus: Annotated[float, Field(ge=0)] = 0.0
    #: Seconds for which there must be more, or less, than the replicas there are should hold.
    upscale_delay_s: Annotated[float, Field(ge=0)] = 10.0
    downscale_delay_s: Annotated[float, Field(ge=0)] = 300.0
    #: Seconds between reports, and over which they are averaged.
    metrics_interval_s: Annotated[float, Field(gt=0)] = 2.0
    look_back_period_s: Annotated[float, Field(gt=0)] = 10.0
    #: Seconds that a replica has to answer what it has admitted, when it is to go.
    grace_s: Annotated[float, Field(ge=0)] = 30.0
    #: Seconds in which a new replica must have every active model warm.
    ready_timeout_s: Annotated[float, Field(gt=0)] = 300.0

    @property
    def settings(self) -> dict[str, Any]:
        """What is left for the server."""
        return {**(self.model_extra or {}), "grace_s": self.grace_s}


def build(args: dict[str, Any]) -> Any:
    """Return the application: ``serve run server.replica:build store=s3://models/team``.

    Errors: ModuleNotFoundError with what to install; ValidationError for arguments that make no sense.
    """
    try:
        from ray import serve
        from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: pip install 'rowwise[ray]'", name=error.name
        ) from error

    arguments = Arguments.model_validate(args)
    app = EmbeddedServer(arguments.settings, ready_timeout_s=arguments.ready_timeout_s)
    scaling: dict[str, Any] = {"num_replicas": arguments.replicas}
    if arguments.replicas is None:
        scaling = {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=arguments.min_replicas,
                max_replicas=arguments.max_replicas,
                target_ongoing_requests=arguments.target_rows,
                upscale_delay_s=arguments.upscale_delay_s,
                downscale_delay_s=arguments.downscale_delay_s,
                metrics_interval_s=arguments.metrics_interval_s,
                look_back_period_s=arguments.look_back_period_s,
                policy=AutoscalingPolicy(policy_function=f"{scale_by_rows.__module__}:{scale_by_rows.__name__}"),
            )
        }
    deployment = serve.deployment(
        serve.ingress(app)(EngineReplica),
        name="rowwise",
        ray_actor_options={"num_cpus": arguments.num_cpus, "num_gpus": arguments.num_gpus},
        max_ongoing_requests=arguments.max_ongoing_requests,
        max_queued_requests=arguments.max_queued_requests,
        graceful_shutdown_timeout_s=arguments.grace_s + 5.0,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=5.0,
        **scaling,
    )
    return deployment.bind()
