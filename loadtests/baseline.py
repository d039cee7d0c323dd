"""The looped baseline: the same models, served the way people do it by hand, done as well as that goes.

FastAPI on uvicorn with uvloop and httptools; orjson both ways and no validation layer in between; the model as a
``tf.function`` with a fixed input signature, traced and warm before the first request, called once for each
example on the event loop (a thread pool costs more than a small model does). It speaks the same protocol as the
server, so that the same requests can be sent to both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
import orjson
import typer
import uvicorn
from fastapi import FastAPI, Request, Response

from loadtests.workload import MODELS

__all__ = ["create_app", "per_example"]


def per_example(model: str) -> Callable[[Any], Any]:
    """Return a function from one element of ``instances`` to one of ``predictions``, ready to be called."""
    import tensorflow as tf

    module = importlib.import_module(MODELS[model])
    entries = getattr(module, "SPEC", {}).get("inputs", {})
    length_of = {entry["length_input"]: name for name, entry in entries.items() if "length_input" in entry}
    dtypes = {name: spec.dtype.as_numpy_dtype for name, spec in module.INPUTS.items()}
    sent = [name for name in dtypes if name not in length_of]
    function = tf.function(module.predict, input_signature=list(module.INPUTS.values()))

    def answer(instance: Any) -> Any:
        named = instance if len(sent) > 1 else {sent[0]: instance}
        arrays = {name: np.asarray(named[name], dtypes[name]) for name in sent}
        arrays |= {name: np.asarray(len(arrays[of]), dtypes[name]) for name, of in length_of.items()}
        outputs = function(*(tf.constant(arrays[name]) for name in dtypes))
        values = {name: value.numpy() for name, value in outputs.items()}
        return next(iter(values.values())) if len(values) == 1 else values

    example = next(iter(module.examples()))
    answer(example[sent[0]] if len(sent) == 1 else example)
    return answer


def create_app(answers: Mapping[str, Callable[[Any], Any]]) -> FastAPI:
    """Return the app: one route for each model, and readiness."""
    app = FastAPI(title="Looped baseline")

    def route(answer: Callable[[Any], Any]) -> Callable[[Request], Any]:
        async def predict(request: Request) -> Response:
            payload = orjson.loads(await request.body())
            predictions = [answer(instance) for instance in payload["instances"]]
            body = orjson.dumps({"predictions": predictions}, option=orjson.OPT_SERIALIZE_NUMPY)
            return Response(body, media_type="application/json")

        return predict

    for model, answer in answers.items():
        app.post(f"/v1/models/{model}:predict")(route(answer))

    @app.get("/v2/health/ready")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    return app


def _command(
    models: Annotated[list[str], typer.Argument(help=f"Models to serve, of {', '.join(MODELS)}.")],
    port: Annotated[int, typer.Option(help="Port on the loopback interface.")] = 8100,
) -> None:
    """Serve models by hand, one call for each request."""
    app = create_app({model: per_example(model) for model in models})
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    typer.run(_command)
