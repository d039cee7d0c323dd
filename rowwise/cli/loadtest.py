"""``rowwise loadtest``: the options, and what they mean together; the work is in ``loadtests.runs``."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowwise.cli.exit_codes import ExitCode, exit_code_of, failed
from rowwise.cli.options import AsJson, Ca, Token
from rowwise.errors import RowwiseClientError

if TYPE_CHECKING:
    from loadtests.runs.session import Mixed, Order

__all__ = ["loadtest"]

_LOOPBACK = "http://127.0.0.1:8000"
#: Longest run without a word about it: a day.
_MAX_S = 86_400.0
_MODELS = "--model"


class _Engine(StrEnum):
    AUTO = "auto"
    DRIVER = "driver"
    LOCUST = "locust"


class _Form(StrEnum):
    JSON = "json"
    BINARY = "binary"


class _Arrivals(StrEnum):
    POISSON = "poisson"
    CONSTANT = "constant"


def loadtest(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The server. No environment variable names it.")
    ] = _LOOPBACK,
    *,
    models: Annotated[
        list[str] | None,
        typer.Option(_MODELS, metavar="NAME[=WEIGHT]", help="A model to ask. Repeat for a mix.", show_default=False),
    ] = None,
    callers: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Closed loop: so many callers, each waiting for its answer. 8 without --rate."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            metavar="N",
            help="Open loop: N requests a second, whatever was answered. With --ramp: the first step.",
        ),
    ] = None,
    arrivals: Annotated[_Arrivals, typer.Option(help="When the requests of an open loop are due.")] = _Arrivals.POISSON,
    ramp: Annotated[bool, typer.Option("--ramp", help="Find the highest rate whose p99 is within --p99-ms.")] = False,
    precision: Annotated[float, typer.Option(min=0.01, max=0.5, help="How closely a ramp looks, as a share.")] = 0.05,
    duration_s: Annotated[
        float | None,
        typer.Option(
            "--duration",
            min=0.1,
            max=_MAX_S,
            metavar="SECONDS",
            help="Measured time: 10, of a ramp's step 4.",
            show_default=False,
        ),
    ] = None,
    warmup_s: Annotated[
        float, typer.Option("--warmup", min=0, max=_MAX_S, metavar="SECONDS", help="Load before it, not counted.")
    ] = 1.0,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.01, max=_MAX_S, metavar="SECONDS", help="Longest wait for an answer.")
    ] = 10.0,
    max_requests: Annotated[int, typer.Option(min=1, max=50_000_000, help="Most that are sent in a run.")] = 1_000_000,
    connections: Annotated[int, typer.Option(min=1, max=10_000, help="Open loop: connections that carry it.")] = 128,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes that the driver is divided among.")] = 1,
    engine: Annotated[
        _Engine, typer.Option(help="Who drives. auto: locust where it keeps up, else the driver.")
    ] = _Engine.AUTO,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="Real examples: .jsonl, .npy or .npz. Without it they are made from the signature.",
            show_default=False,
        ),
    ] = None,
    generate: Annotated[int, typer.Option(min=1, max=10_000, help="How many are made from the signature.")] = 200,
    max_length: Annotated[int, typer.Option(min=1, max=100_000, help="Longest variable dimension of those.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Of inputs, arrivals and the mix.")] = 0,
    form: Annotated[
        _Form, typer.Option(help="JSON rows, or binary tensors of the Open Inference Protocol.")
    ] = _Form.JSON,
    check: Annotated[
        bool, typer.Option("--check", help="Ask each example alone first, and compare all answers.")
    ] = False,
    tolerance: Annotated[float, typer.Option(min=0, help="Of --check: absolute, and relative.")] = 1e-4,
    compare: Annotated[
        str | None, typer.Option(metavar="URL", help="Another server: same load, in turn.", show_default=False)
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]MODULE:FUNCTION",
            help="Start the looped baseline with this function, and compare.",
            show_default=False,
        ),
    ] = None,
    compare_token: Annotated[
        str | None,
        typer.Option(
            envvar="ROWWISE_COMPARE_TOKEN",
            metavar="TOKEN",
            help="The other server's token: it never gets the first one's.",
            show_default=False,
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Runs of each server that is compared.")] = 3,
    p99_ms: Annotated[
        float | None, typer.Option(min=0.001, metavar="MS", help="Target: exit 1 if p99 is above.", show_default=False)
    ] = None,
    max_errors: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Target: exit 1 if more fail.")
    ] = 0.0,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where report.html and report.json go.")] = Path(
        "reports/loadtest"
    ),
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Don't load: stand before the server, and keep callers' examples in DIR.",
            show_default=False,
        ),
    ] = None,
    listen_port: Annotated[
        int, typer.Option("--listen", min=1, max=65_535, metavar="PORT", help="Of --record.")
    ] = 8010,
    as_json: AsJson = False,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Load a server, and report what it did: an HTML page with pictures, and its figures as JSON.

    [bold]Examples[/bold]

        rowwise loadtest --model digits --callers 32

        rowwise loadtest --model digits --rate 500 --duration 30 --p99-ms 20 --inputs digits.jsonl --check

        rowwise loadtest --model digits --ramp --p99-ms 20

        rowwise loadtest http://gpu1:8000 --model digits=8 --model lstm=2 --rate 200 --token "$TOKEN"

        rowwise loadtest --model digits --baseline models.digits:predict

        rowwise loadtest --record recorded/ --listen 8010        (callers use port 8010 meanwhile)

    Ctrl-C ends the load, and what was measured until then is reported.

    Exit codes: 0 all targets met; 1 one was missed, or it could not be measured; 2 the command line is wrong; 3 to 5
    and 130 as of all commands.
    """
    _check_url(url, "URL")
    if record is not None:
        _record(url, record, port=listen_port, max_examples=max_requests)
        return
    from loadtests.runs.choice import locust_is_installed, refusal_of_locust
    from loadtests.runs.load import Load
    from loadtests.runs.session import Order
    from loadtests.runs.verdict import Targets

    mixed = _mixed(models, inputs)
    if callers is not None and (rate is not None or ramp):
        raise typer.BadParameter("callers make a closed loop, and a rate or a ramp an open one", param_hint="--callers")
    if ramp and p99_ms is None:
        raise typer.BadParameter("a ramp looks for the rate at a p99: say which", param_hint="--p99-ms")
    if compare is not None and baseline:
        raise typer.BadParameter("one other server at a time", param_hint="--compare / --baseline")
    if ramp and (compare is not None or baseline):
        raise typer.BadParameter("a ramp is of one server", param_hint="--ramp")
    if compare is not None:
        _check_url(compare, "--compare")
    if baseline and form is _Form.BINARY:
        raise typer.BadParameter("the baseline knows JSON only", param_hint="--form")
    load = Load(
        callers=None if rate is not None or ramp else callers or 8,
        rate=rate,
        arrivals=arrivals.value,
        connections=connections,
        warmup_s=warmup_s,
        duration_s=duration_s if duration_s is not None else 4.0 if ramp else 10.0,
        timeout_s=timeout_s,
        max_requests=max_requests,
        seed=seed,
    )
    if engine is _Engine.LOCUST:
        scheme = url.partition(":")[0]
        refusal = "a ramp is made of open loops" if ramp else None
        refusal = refusal or refusal_of_locust(load, scheme=scheme, is_installed=locust_is_installed())
        if refusal is not None:
            raise typer.BadParameter(refusal, param_hint="--engine locust")
    order = Order(
        url=url.rstrip("/"),
        models=mixed,
        load=load,
        targets=Targets(p99_ms=p99_ms, max_errors=max_errors),
        is_ramp=ramp,
        first_rate=rate if ramp else None,
        precision=precision,
        engine=engine.value,
        n_processes=processes,
        form=form.value,
        is_checked=check,
        tolerance=tolerance,
        n_generated=generate,
        max_length=max_length,
        seed=seed,
        compare=compare.rstrip("/") if compare is not None else None,
        baseline=_baselines(baseline, mixed),
        repeats=repeats,
        token=token,
        compare_token=compare_token,
        ca=str(ca) if ca is not None else None,
    )
    report = _measured(order)
    _tell(report, output, as_json=as_json)
    raise typer.Exit(0 if report["is_met"] else 1)


def _measured(order: Order) -> dict[str, Any]:
    from loadtests.runs.crew import GeneratorFailed
    from loadtests.runs.inputs import InputsUnreadable
    from loadtests.runs.session import perform
    from loadtests.runs.views import view_for

    view = view_for()
    try:
        with view:
            return perform(order, view)
    except RowwiseClientError as error:
        raise failed(str(error), exit_code_of(error)) from error
    except (InputsUnreadable, GeneratorFailed, OSError, RuntimeError) as error:
        raise failed(str(error)) from error
    except KeyboardInterrupt:
        raise failed("interrupted before anything was measured", ExitCode.INTERRUPTED) from None


def _tell(report: dict[str, Any], output: Path, *, as_json: bool) -> None:
    from loadtests.runs.page import page
    from loadtests.runs.summary import summary
    from loadtests.terminal import terminal

    text = json.dumps(report, indent=1)
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / "report.json").write_text(text, encoding="utf-8")
        (output / "report.html").write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise failed(f"the report can't be written: {error}") from error
    if as_json:
        typer.echo(text)
        return
    console = terminal()
    for each in summary(report):
        console.print(each)
    console.print(
        f"Report: {output / 'report.html'}, figures: {output / 'report.json'}", highlight=False, soft_wrap=True
    )


def _record(url: str, directory: Path, *, port: int, max_examples: int) -> None:
    from loadtests.runs.recorder import Recorder, listen

    recorder = Recorder(directory=directory, max_examples=max_examples)
    typer.echo(f"Passing http://127.0.0.1:{port} on to {url}; examples go to {directory}. Ctrl-C ends it.", err=True)
    listen(url, recorder, port=port)
    for model, count in sorted(recorder.n_kept.items()):
        typer.echo(f"{model}: {count:,} examples")
    if recorder.n_passed:
        typer.echo(f"{recorder.n_passed:,} requests passed that hold no rows of examples, or came after the limit.")


def _check_url(url: str, where: str) -> None:
    from loadtests.keepalive import address_of

    try:
        address_of(url, schemes=("http", "https"))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=where) from error


def _mixed(models: list[str] | None, inputs: list[str] | None) -> tuple[Mixed, ...]:
    """Return the models with their weights and files."""
    from loadtests.runs.session import Mixed

    if not models:
        raise typer.BadParameter("say which models to ask; `rowwise models` lists them", param_hint=_MODELS)
    weights: dict[str, float] = {}
    for text in models:
        name, equals, weight = text.rpartition("=")
        try:
            number = float(weight) if equals else 1.0
        except ValueError as error:
            raise typer.BadParameter(f"{text!r}: {weight!r} is no weight", param_hint=_MODELS) from error
        if not 0 < number < math.inf:
            raise typer.BadParameter(f"{text!r}: a weight is above 0", param_hint=_MODELS)
        weights[name if equals else text] = number
    files = {name: Path(path) for name, path in _by_model(inputs or [], list(weights), "--inputs").items()}
    return tuple(Mixed(model=name, weight=weight, inputs=files.get(name)) for name, weight in weights.items())


def _baselines(baseline: list[str] | None, mixed: tuple[Mixed, ...]) -> tuple[tuple[str, str], ...]:
    names = [each.model for each in mixed]
    found = _by_model(baseline or [], names, "--baseline")
    if baseline and set(found) != set(names):
        raise typer.BadParameter(f"each model needs its function: {', '.join(names)}", param_hint="--baseline")
    return tuple(found.items())


def _by_model(entries: list[str], models: list[str], option: str) -> dict[str, str]:
    """Return ``[NAME=]VALUE`` entries by model; without a name it is the only model's."""
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals:
            if len(models) != 1:
                raise typer.BadParameter(f"several models: say NAME={entry}", param_hint=option)
            name, value = models[0], entry
        if name not in models:
            raise typer.BadParameter(f"{entry!r}: there is no --model {name}", param_hint=option)
        found[name] = value
    return found
