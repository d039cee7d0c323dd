"""The same examples to the same server in each form of request: which costs the server how much.

``python -m loadtests.forms`` starts the server once and measures the forms in turn, several times, so that whatever
else the machine does falls on all of them; it prints medians, and each form's ratio to TensorFlow Serving's row form.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import orjson
import typer
from rich.table import Table

from loadtests.contenders import Cores, Server, pinned, rowwise_command
from loadtests.driver import drive
from loadtests.terminal import terminal
from loadtests.workload import MODELS, Workload, equal, load, make

__all__ = ["FORMS", "InferWorkload", "forms_of"]

#: The first one is what the others are compared with.
FORMS = ("predict", "predict, in two", "infer, nested", "infer, flat", "infer, binary", "infer, raw")

_FP32 = "FP32"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferWorkload(Workload):
    """Requests in the Open Inference Protocol, one example each.

    ``n_jsons``: how many bytes of each body are JSON; empty: all of all.
    """

    output: str
    n_jsons: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """The URL path that the requests go to."""
        return f"/v2/models/{self.model}/infer"

    def requests(self, host: str) -> list[bytes]:
        """Return the bytes of every request, head and body, for HTTP/1.1 with keep-alive."""
        head = f"POST {self.path} HTTP/1.1\r\nHost: {host}\r\n".encode()
        lengths = [b"Inference-Header-Content-Length: %d\r\n" % n_json for n_json in self.n_jsons]
        return [
            b"%s%sContent-Length: %d\r\n\r\n%s" % (head, length, len(body), body)
            for length, body in zip(lengths or [b""] * len(self.bodies), self.bodies, strict=True)
        ]

    def accepts(self, index: int, body: bytes) -> bool:
        """Return whether ``body`` is the right answer to request ``index``."""
        try:
            if not self.n_jsons:
                (told,) = orjson.loads(body)["outputs"]
                got = told["data"]
            else:
                end = body.index(b"}]}") + 3
                (told,) = orjson.loads(body[:end])["outputs"]
                got = np.frombuffer(body[end:], np.float32).tolist()
        except (ValueError, KeyError, TypeError):
            return False
        return told["name"] == self.output and equal(got, self.answers[index], tolerance=self.tolerance)


def forms_of(predict: Workload, *, name: str, output: str) -> dict[str, Workload]:
    """Return a workload of one FP32 input and one FP32 output in every form, by their names.

    Shapes: examples may differ in theirs; without that of its tensor a raw body says nothing then, and is left out.
    """
    images = [np.array(orjson.loads(body)["instances"], np.float32) for body in predict.bodies]

    def infer(bodies: list[bytes], n_jsons: tuple[int, ...] = ()) -> Workload:
        return InferWorkload(
            model=predict.model, bodies=tuple(bodies), answers=predict.answers, output=output, n_jsons=n_jsons
        )

    def written(shape: tuple[int, ...], values: Any) -> bytes:
        tensor = {"name": name, "shape": shape, "datatype": _FP32, "data": values}
        return orjson.dumps({"inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)

    def header(image: np.ndarray[Any, Any]) -> bytes:
        size = {"binary_data_size": image.nbytes}
        tensor = {"name": name, "shape": image.shape, "datatype": _FP32, "parameters": size}
        return orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})

    headers = [header(image) for image in images]
    made = {
        "predict": predict,
        "predict, in two": replace(predict, in_two=True),
        "infer, nested": infer([written(image.shape, image) for image in images]),
        "infer, flat": infer([written(image.shape, image.reshape(-1)) for image in images]),
        "infer, binary": infer(
            [head + image.tobytes() for head, image in zip(headers, images, strict=True)], tuple(map(len, headers))
        ),
    }
    if len({image.shape for image in images}) == 1:
        made["infer, raw"] = infer([image.tobytes() for image in images], (0,) * len(images))
    return made


def _command(
    model: Annotated[str, typer.Option(help="digits or digits_convnet.")] = "digits",
    callers: Annotated[list[int], typer.Option(min=1)] = [1, 32, 128],  # noqa: B006 - typer's form of a default
    repeats: Annotated[int, typer.Option(min=1)] = 5,
    duration_s: Annotated[float, typer.Option(min=0.01)] = 1.0,
) -> None:
    """Measure every form of request against one server, in turn."""
    if model not in MODELS:
        raise typer.BadParameter(f"unknown model {model!r}; there are {', '.join(MODELS)}")
    cores, console = Cores.here(), terminal()
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        workloads = forms_of(load(make(model, Path(directory))), name="image", output="probabilities")
        server = Server(
            "rowwise", lambda port: rowwise_command(port, store=store, models=[model]), core=cores.server, timeout_s=600
        )
        with server, pinned(cores.driver):
            for n in callers:
                found: dict[str, list[tuple[float, float, float]]] = {form: [] for form in FORMS}
                for _ in range(repeats):
                    for form, workload in workloads.items():
                        began_s = server.cpu_s()
                        run = drive(server.url, workload, callers=n, warmup_s=0.0, duration_s=duration_s)
                        if run.failures:
                            raise RuntimeError(f"{form}: {run.first_failure}")
                        cpu_us = (server.cpu_s() - began_s) / run.n_answers * 1e6
                        found[form].append((run.requests_per_s, run.p50_us, cpu_us))
                console.print(_table(model, n, found))


def _table(model: str, callers: int, found: dict[str, list[tuple[float, float, float]]]) -> Table:
    table = Table("form", "requests/s", "x", "p50 us", "CPU us", "x", title=f"{model}, {callers} callers")
    first = found[FORMS[0]]
    for form, runs in found.items():
        rates, waits, costs = zip(*runs, strict=True)
        rate_ratio = median(run[0] / base[0] for run, base in zip(runs, first, strict=True))
        cost_ratio = median(run[2] / base[2] for run, base in zip(runs, first, strict=True))
        table.add_row(
            form,
            f"{median(rates):,.0f}",
            f"{rate_ratio:.2f}",
            f"{median(waits):,.0f}",
            f"{median(costs):.1f}",
            f"{cost_ratio:.2f}",
        )
    return table


if __name__ == "__main__":
    typer.run(_command)
