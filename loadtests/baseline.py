"""The looped baseline: the same models, served the way people do it by hand, done as well as that goes.

FastAPI on uvicorn with uvloop and httptools; orjson both ways and no validation layer in between; the model as a
``tf.function`` with a fixed input signature, traced and warm before the first request, called once for each
example on the event loop (a thread pool costs more than a small model does). It speaks the same protocol as the
server, so that the same requests can be sent to both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
import orjson
import typer
import uvicorn
from fastapi import FastAPI, Request, Response

from loadtests.workload import MODELS
from rowwise.input_specs import length_inputs
from rowwise.targets import load_target

__all__ = ["create_app", "per_example"]


def per_example(target: str) -> Callable[[Any], Any]:
    """Return a function from one element of ``instances`` to one of ``predictions``, ready to be called.

    ``target`` is MODULE:FUNCTION, with inputs as ``rowwise register`` finds them. Errors: CannotLoad; ValueError for a
    function whose inputs nobody says.
    """
    import tensorflow as tf

    found = load_target(target)
    if found.inputs is None or not callable(found.value):
        raise ValueError(f"{target}: its inputs are not known; say INPUTS in its module, or annotate them")
    # In the order of the parameters, as the arguments go by place, which is the quickest call.
    order = [name for name in inspect.signature(found.value).parameters if name in found.inputs]
    forms = {name: found.inputs[name] for name in (order if len(order) == len(found.inputs) else found.inputs)}
    filled = set(length_inputs(forms))
    dtypes = {name: tf.as_dtype(form["dtype"]) for name, form in forms.items()}
    length_of = {form["length_input"]: name for name, form in forms.items() if "length_input" in form}
    sent = [name for name in dtypes if name not in filled]
    signature = [tf.TensorSpec(form["shape"], dtypes[name], name) for name, form in forms.items()]
    function = tf.function(found.value, input_signature=signature)

    def answer(instance: Any) -> Any:
        named = instance if len(sent) > 1 else {sent[0]: instance}
        arrays = {name: np.asarray(named[name], dtypes[name].as_numpy_dtype) for name in sent}
        arrays |= {name: np.asarray(len(arrays[of]), dtypes[name].as_numpy_dtype) for name, of in length_of.items()}
        outputs = function(*(tf.constant(arrays[name]) for name in dtypes))
        if not isinstance(outputs, Mapping):
            return outputs.numpy()
        values = {name: value.numpy() for name, value in outputs.items()}
        return next(iter(values.values())) if len(values) == 1 else values

    example = next(iter(found.spec.get("examples", ())), None)
    if example is None:
        example = {
            name: np.zeros([size or 1 for size in form["shape"]], dtypes[name].as_numpy_dtype)
            for name, form in forms.items()
        }
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
    models: Annotated[
        list[str], typer.Argument(help=f"Models to serve: of {', '.join(MODELS)}, or NAME=MODULE:FUNCTION.")
    ],
    port: Annotated[int, typer.Option(help="Port on the loopback interface.")] = 8100,
) -> None:
    """Serve models by hand, one call for each request."""
    named = dict(_named(model) for model in models)
    app = create_app({name: per_example(target) for name, target in named.items()})
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning")


def _named(model: str) -> tuple[str, str]:
    """Return a model's name and what serves it."""
    name, equals, target = model.partition("=")
    return (name, target) if equals else (name, f"{MODELS[name]}:predict")


if __name__ == "__main__":
    typer.run(_command)
