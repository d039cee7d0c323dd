"""The client of a Rowwise server, for threads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

import httpx

from rowwise._calls import Calls
from rowwise._http import Connection, Target, model_path
from rowwise._pointing import Pointing
from rowwise._predictions import Prediction
from rowwise._registering import OnStage, Registering
from rowwise._retries import Retries
from rowwise.version_status import VersionStatus

__all__ = ["Client"]


class Client:
    """Registers and calls the models of the server at ``url``.

        with Client("http://127.0.0.1:8000") as client:
            client.register("digits", predict, inputs={"x": tf.TensorSpec([64])})
            client.predict("digits", x=pixels)

    ``timeout_s`` bounds the wait for each answer, retries included, and the server drops a prediction that it can't
    give within it. ``register_timeout_s`` bounds a whole registration (None: as long as the server's own limit lets
    it build). ``retries``: how often a request is sent again at most, where that is safe: what could not be received,
    and predictions and questions that the server refused for now (429 and 503, not before its Retry-After) or whose
    connection broke; 0: never. ``connections``: most that are open at once, and most ``submit`` uses.
    ``binary``: numbers travel as they lie in memory where that can be; False: all as JSON.
    ``progress``: True or False shows or hides the bar of a registration; None shows it on a terminal.
    ``ca``: a file of certificates in PEM that an https server's is checked with; None: those of this machine.
    One client may be shared by threads, and used on by a child process after a fork: it makes connections of its own.
    Errors: every method raises subclasses of RowwiseClientError.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        register_timeout_s: float | None = None,
        retries: int = 3,
        connections: int = 32,
        binary: bool = True,
        progress: bool | None = None,
        ca: str | os.PathLike[str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        target = Target(url, token=token, connections=connections, ca=ca)
        self._connection = Connection(target, transport=transport)
        self._calls = Calls(timeout_s=timeout_s, retries=Retries(retries), binary=binary)
        self._registering = Registering(self._calls, timeout_s=register_timeout_s, progress=progress)
        self._pointing = Pointing(self._calls)
        self._n_threads = connections
        self._lock = Lock()
        #: What carries out futures, and in which process; None: nobody has asked for one.
        self._executor: tuple[int, ThreadPoolExecutor] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the futures that run, cancel the others, and close the connections. A closed client stays closed."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None and executor[0] == os.getpid():
            executor[1].shutdown(cancel_futures=True)
        self._connection.close()

    def register(
        self,
        name: str,
        target: Any = None,
        *,
        source: str | Path | None = None,
        weights: Mapping[str, Any] | Path | None = None,
        function: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_stage: OnStage | None = None,
        **spec: Any,
    ) -> VersionStatus:
        """Register a per-example function as a new version of model ``name``, and wait until it is AVAILABLE.

        ``target``: a plain function of one example (``if`` and ``while`` on tensors included), a
        ``tf.function``, a ``tf.Module``, a Keras model, or the path of a SavedModel directory or archive. A
        function is traced here, and saved with every variable that it reads.
        ``inputs``: by name a ``tf.TensorSpec``, an array that is one example, or a dict of ``dtype``, ``shape``
        and the details of a variable dimension (``max``, ``length_input``, ``lengths``). Not needed for a
        SavedModel, a built Keras model and a function with ``rowwise.example_model``.
        ``source``, in place of a target: the text of a Python module, or a Path of one, that the server traces itself,
        where its operator allows it. Its ``function`` (``predict``) reads ``weights``, arrays by name or the Path of an
        ``.npz``, as ``weights[name]``. Nothing of it runs here.
        ``on_stage`` is called with each stage (``rowwise.version_status.Stage``) as often as it moves: here trace,
        pack and upload; on the server queued, vectorize, check, derive, measure, write and load, which warms it.
        ``spec``: the registration's other options, such as ``max_batch`` or ``allow_looped``. With ``activate=False``
        it is waited for until it is BUILT, and serves once it is activated.
        Shapes: those of one example; None where examples differ.
        Errors: BuildFailed with the reason; CannotTrace; WrongInputs; Superseded; TimedOut; ServerRefused.
        """
        return self._connection.run(
            self._registering.register(
                name,
                target,
                source=source,
                weights=weights,
                function=function,
                inputs=inputs,
                spec=spec,
                on_stage=on_stage,
            )
        )

    def register_import(
        self, name: str, import_path: str, *, on_stage: OnStage | None = None, **spec: Any
    ) -> VersionStatus:
        """Register a function that the server imports itself, ``MODULE:FUNCTION``, and wait until it is AVAILABLE.

        The server's operator has to have allowed the package. Errors: as for ``register``.
        """
        return self._connection.run(self._registering.register_import(name, import_path, spec=spec, on_stage=on_stage))

    def predict(self, name: str, /, **inputs: Any) -> Prediction:
        """Return the model's outputs for one example: an array if it has one output, else a dict of arrays.

        Shapes: inputs and outputs are those of one example, without a batch dimension.
        Errors: NotFound; WrongInputs; InvalidRequest; Overloaded with ``retry_after_s``; TimedOut.
        """
        return self._connection.run(self._calls.predict(name, [inputs], version=None))[0]

    def submit(self, name: str, /, **inputs: Any) -> Future[Prediction]:
        """Start a prediction of one example on another thread, and return its future.

        At most ``connections`` run at once; more wait. Errors: the future has those of ``predict``.
        """
        return self._threads().submit(partial(self.predict, name, **inputs))

    def predict_many(
        self, name: str, examples: Iterable[Any], *, version: int | None = None, n_per_request: int = 256
    ) -> list[Prediction]:
        """Return the outputs for each of ``examples``, in order, ``n_per_request`` of them in a request.

        An example is a dict of the model's inputs, or a bare value where there is one input; each may have its
        own length in a variable dimension. ``version`` None asks the active one. Errors: as for ``predict``;
        one wrong example fails its request.
        """
        return self._connection.run(
            self._calls.predict_many(name, examples, version=version, n_per_request=n_per_request)
        )

    def submit_many(
        self, name: str, examples: Iterable[Any], *, version: int | None = None, n_per_request: int = 256
    ) -> Future[list[Prediction]]:
        """Start ``predict_many`` on another thread, and return its future."""
        ask = partial(self.predict_many, name, examples, version=version, n_per_request=n_per_request)
        return self._threads().submit(ask)

    def gradient(self, name: str, example: Any, **options: Any) -> Prediction:
        """Return the gradient of a scalar output for one example: an array, or a dict if it is by several.

        ``options`` are those of ``derivative_many``. Shapes: those of what it is by. Errors: as for ``predict``.
        """
        return self.derivative_many("gradient", name, [example], **options)[0]

    def jacobian(self, name: str, example: Any, **options: Any) -> Prediction:
        """Return the Jacobian of an output for one example: an array, or a dict if it is by several.

        ``options`` are those of ``derivative_many``. Shapes: the output's, then that of what it is by. Errors: as
        for ``predict``.
        """
        return self.derivative_many("jacobian", name, [example], **options)[0]

    def hessian(self, name: str, example: Any, **options: Any) -> Prediction:
        """Return the second derivatives of a scalar output for one example, by pairs ``x,y`` if by several.

        ``options`` are those of ``derivative_many``. Errors: as for ``predict``.
        """
        return self.derivative_many("hessian", name, [example], **options)[0]

    def derivative_many(
        self,
        kind: str,
        name: str,
        examples: Iterable[Any],
        *,
        output: str | None = None,
        wrt: str | Sequence[str] | None = None,
        version: int | None = None,
        n_per_request: int = 256,
    ) -> list[Prediction]:
        """Return a derivative that the model declares (gradient, jacobian or hessian) for each of ``examples``.

        ``output`` and ``wrt``, inputs or variables by name, are needed where the model declares more than one.
        Examples are those of ``predict_many``. Errors: as for ``predict``; InvalidRequest lists what there is.
        """
        return self._connection.run(
            self._calls.derivative_many(
                kind, name, examples, output=output, wrt=wrt, version=version, n_per_request=n_per_request
            )
        )

    def models(self) -> list[VersionStatus]:
        """Return every version of every model that the server holds, as far as the token may know of them."""
        return self._connection.run(self._calls.models())

    def certificate(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Return how each op of the model was vectorized and how it was checked. None: the active version."""
        return self._connection.run(self._calls.document(name, version, "/certificate"))

    def metadata(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Return the inputs and outputs of a version, as TensorFlow Serving tells them. None: the active one."""
        return self._connection.run(self._calls.metadata(name, version))

    def costs(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Return the measured cost of every bucket in every execution mode. None: the active version."""
        return self._connection.run(self._calls.document(name, version, "/costs"))

    def activate(self, name: str, version: int) -> None:
        """Make ``version`` the one that unversioned requests get: switch, or roll back."""
        self._connection.run(self._pointing.activate(name, version))

    def rollback(self, name: str) -> VersionStatus:
        """Make the version the active one that was before the active one; return it."""
        return self._connection.run(self._pointing.rollback(name))

    def unload(self, name: str) -> None:
        """Let no version answer any more, also after a restart; ``activate`` ends that. Nothing is deleted."""
        self._connection.run(self._pointing.unload(name))

    def labels(self, name: str) -> dict[str, int]:
        """Return the labels of a model that were set, with the version that each leads to."""
        return self._connection.run(self._pointing.labels(name))

    def set_label(self, name: str, label: str, version: int) -> VersionStatus:
        """Let ``label`` lead to ``version``, which is loaded for it; return the version."""
        return self._connection.run(self._pointing.set_label(name, label, version))

    def remove_label(self, name: str, label: str) -> None:
        """Remove a label that was set."""
        self._connection.run(self._pointing.remove_label(name, label))

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return what was activated, oldest first: ``version`` (None: unloaded), ``at`` and ``by``."""
        return self._connection.run(self._pointing.history(name))

    def set_shadow(self, name: str, version: int, share: float) -> dict[str, Any]:
        """Let ``version`` run on a share of the live batches (0 ends it), answering nobody; return the comparison."""
        path = model_path(name, version, ":shadow")
        report: dict[str, Any] = self._connection.run(self._calls.tell("POST", path, {"share": share}))
        return report

    def shadow(self, name: str, version: int) -> dict[str, Any]:
        """Return how the answers of a version that runs as a shadow compare with those of the one that serves."""
        report: dict[str, Any] = self._connection.run(self._calls.ask(model_path(name, version, "/shadow")))
        return report

    def delete(self, name: str, version: int | None = None) -> None:
        """Delete one version, or with None the model and all its versions."""
        self._connection.run(self._calls.delete(name, version))

    def ready(self) -> bool:
        """Return True if every active model is warm and the server is not shutting down."""
        return self._connection.run(self._calls.ready())

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None or self._executor[0] != os.getpid():
                # Threads don't survive a fork.
                made = ThreadPoolExecutor(self._n_threads, thread_name_prefix="rowwise-client")
                self._executor = os.getpid(), made
            return self._executor[1]
