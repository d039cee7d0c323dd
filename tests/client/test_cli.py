from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner

from loadtests.ports import free_port
from rowwise import __version__
from rowwise.cli import app
from rowwise.cli.serve import settings_from
from server.settings import Settings
from server.spec import ModelSpec

_X = {"name": "x:0", "dtype": "DT_FLOAT", "tensor_shape": {"dim": []}}
METADATA = {
    "metadata": {
        "signature_def": {
            "signature_def": {
                "serving_default": {"inputs": {"x": _X}, "outputs": {"y": _X}},
                "jacobian": {"inputs": {"x": _X}, "outputs": {"x": _X}},
            }
        },
        "derivatives": [{"name": "jacobian", "kind": "jacobian", "output": "y", "wrt": ["x"]}],
    }
}
COMMANDS = ["certificate", "models", "predict", "register", "serve", "vectorize", "version"]


@pytest.fixture
def run(monkeypatch):
    """Run the command in this process, in a wide terminal and without our own settings in the environment."""
    for name in ("ROWWISE_URL", "ROWWISE_TOKEN", "ROWWISE_STORE", "ROWWISE_PORT"):
        monkeypatch.delenv(name, raising=False)
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda *arguments, **options: runner.invoke(app, [*map(str, arguments)], **options)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "model.zip"
    path.write_bytes(b"packed")
    return path


def option_names(command: str) -> set[str]:
    group = typer.main.get_command(app)
    return {parameter.name for parameter in group.commands[command].params}


def test_the_help_lists_every_command_and_starts_a_first_session(run):
    answer = run("--help")

    assert answer.exit_code == 0
    for command in COMMANDS:
        assert f"│ {command} " in answer.output
    assert "rowwise predict digits --input pixels.npy" in answer.output
    assert "Exit codes: 0 done; 1 failed" in answer.output


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "version"])
def test_each_command_teaches_by_examples(run, command):
    answer = run(command, "--help")

    assert answer.exit_code == 0
    assert "Examples" in answer.output
    assert f"rowwise {command}" in answer.output.split("Examples")[1]


def test_no_command_shows_the_help(run):
    assert "Usage" in run().output


def test_the_version_is_the_packages(run):
    assert run("version").output == f"rowwise {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict"],
        ["predict", "double"],
        ["predict", "double", "--json", "1", "--input", "x.npy"],
        ["predict", "double", "--json", "{"],
        ["predict", "double", "--json", '{"x": {"b64": "?"}}'],
        ["predict", "double", "--input", "missing.npy"],
        ["register", "fresh"],
        ["register", "fresh", "m:f", "--spec", "[]"],
        ["register", "fresh", "m:f", "--spec", "@missing.json"],
        ["register", "fresh", "m:f", "--max-batch", "0"],
        ["serve", "--port", "70000"],
        ["serve", "--port", "http"],
        ["unknown"],
    ],
)
def test_a_wrong_command_line_exits_with_2(run, arguments):
    answer = run(*arguments)

    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert answer.stderr


def test_predict_takes_one_bare_example(run, url, server):
    answer = run("predict", "double", "--json", "[1, 2.5]", "--url", url)

    assert (answer.exit_code, json.loads(answer.stdout)) == (0, [2.0, 5.0])
    assert json.loads(server.requests[-1][3]) == {"instances": [[1, 2.5]]}


def test_predict_takes_an_object_of_inputs_and_prints_every_output(run, url):
    answer = run("predict", "describe", "--json", '{"text": "ab", "times": 2}', "--url", url)

    assert json.loads(answer.stdout) == {"upper": "ABAB", "count": 2}


def test_predict_sends_what_is_written_as_b64_as_bytes(run, url, server):
    run("predict", "double", "--json", '{"b64": "AP8="}', "--url", url)

    (body,) = (body for method, _, _, body in server.requests if method == "POST")
    assert json.loads(body) == {"instances": [{"b64": "AP8="}]}


def test_predict_reads_standard_input_and_prints_not_a_number(run, url):
    answer = run("predict", "double", "--json", "-", "--url", url, input="[NaN, 1]")

    assert answer.stdout == "[NaN,2.0]\n"


def test_predict_reads_numpy_files(run, url, server, tmp_path):
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0]))
    np.save(tmp_path / "text.npy", np.array("ab"))
    np.save(tmp_path / "times.npy", np.array(3))
    np.savez(tmp_path / "both.npz", text=np.array("ab"), times=np.array(3))
    text, times = (f"{name}={tmp_path}/{name}.npy" for name in ("text", "times"))

    assert json.loads(run("predict", "double", "--input", tmp_path / "x.npy", "--url", url).stdout) == [2.0, 4.0]
    for inputs in (["--input", text, "--input", times], ["--input", tmp_path / "both.npz"]):
        answer = run("predict", "describe", *inputs, "--url", url)
        assert json.loads(answer.stdout) == {"upper": "ABABAB", "count": 2}
    unnamed = run("predict", "describe", "--input", text, "--input", tmp_path / "times.npy", "--url", url)
    assert unnamed.exit_code == 2
    assert "need their names" in unnamed.stderr


def test_predict_refuses_pickles(run, url, tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}]), allow_pickle=True)

    answer = run("predict", "double", "--input", tmp_path / "x.npy", "--url", url)

    assert answer.exit_code == 2
    assert "can't be read as a NumPy file" in answer.stderr


def test_predict_can_ask_a_version(run, url, server):
    run("predict", "double", "--json", "1", "--version", 2, "--url", url)

    assert server.paths()[-1] == "POST /v1/models/double/versions/2:predict"


def test_a_refusal_exits_with_1_and_its_sentence_on_standard_error(run, url):
    answer = run("predict", "nobody", "--json", "1", "--url", url)

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr == "error: there is no /v1/models/nobody/metadata\n"


def test_models_prints_a_line_for_each_version(run, url):
    answer = run("models", "--url", url)

    lines = [line.split() for line in answer.stdout.splitlines()]
    assert lines[0] == ["model", "version", "state", "active", "created", "reason"]
    assert lines[1] == ["double", "2", "AVAILABLE", "yes"]
    assert " ".join(lines[2]) == "ranker 1 FAILED op Unique [Unique] has no converter"


def test_models_can_print_json(run, url):
    listed = json.loads(run("models", "--json", "--url", url).stdout)

    assert [(entry["model"], entry["version"], entry["active"]) for entry in listed] == [
        ("double", 2, True),
        ("ranker", 1, False),
    ]


def test_an_empty_server_says_how_to_go_on(run, url, server):
    server.script.append((200, {}, b'{"models": []}'))

    assert "rowwise register NAME MODULE:FUNCTION" in run("models", "--url", url).stdout


def test_register_uploads_and_says_when_it_is_available(run, url, server, archive, tmp_path):
    (tmp_path / "spec.json").write_text('{"signature": "score", "max_batch": 4}')

    answer = run(
        *("register", "fresh", archive, "--url", url, "--spec", f"@{tmp_path}/spec.json"),
        *("--max-batch", 16, "--allow-looped", "Unique", "--allow-looped", "Where"),
    )

    assert (answer.exit_code, answer.stdout) == (0, "fresh version 7 is AVAILABLE\n")
    parts = server.last_parts()
    assert parts["archive"] == ("model.zip", b"packed")
    assert json.loads(parts["spec"][1]) == {
        "signature": "score",
        "max_batch": 16,
        "allow_looped": ["Unique", "Where"],
    }


def test_every_field_of_a_registration_that_is_one_value_has_an_option(run, url, server, archive):
    spec = {"signature": "other", "labels": {"team": "vision", "stage": "old"}, "random": "seeded"}
    answer = run(
        *("register", "fresh", archive, "--url", url, "--spec", json.dumps(spec), "--buckets", "1, 8,64"),
        *("--signature", "score", "--no-batch-dimension", "--outputs", "z,a", "--queue", 9, "--tolerance", 0.01),
        *("--default-timeout-ms", 250, "--invariant", "--random", "refuse", "--derivative", "gradient"),
        *("--derivative", "hessian", "--label", "stage=new", "--label", "best", "--no-activate"),
    )

    assert (answer.exit_code, answer.output) == (0, "fresh version 7 is BUILT\n")
    sent = json.loads(server.last_parts()["spec"][1])
    assert sent == {
        "signature": "score",
        "labels": {"team": "vision", "stage": "new", "best": ""},
        "random": "refuse",
        "buckets": [1, 8, 64],
        "batch_dimension": False,
        "outputs": ["z", "a"],
        "queue": 9,
        "tolerance": 0.01,
        "default_timeout_ms": 250,
        "invariant": True,
        "derivatives": ["gradient", "hessian"],
        "activate": False,
    }
    ModelSpec.model_validate(sent)
    assert run("register", "fresh", archive, "--url", url, "--buckets", "auto").exit_code == 0
    assert json.loads(server.last_parts()["spec"][1]) == {"buckets": "auto"}


def test_no_field_of_a_registration_is_forgotten_by_the_options():
    """Those of several values are JSON: inputs and examples."""
    named = {name.removesuffix("s") for name in option_names("register")}
    assert {field.removesuffix("s") for field in ModelSpec.model_fields} - named == {"input", "example"}


@pytest.mark.parametrize("buckets", ["", "0", "1,,2", "1,x", "-1", "1.5"])
def test_batch_sizes_are_numbers(run, archive, buckets):
    answer = run("register", "fresh", archive, "--buckets", buckets)

    assert answer.exit_code == 2
    assert "are no batch sizes" in answer.output


def test_register_exits_with_1_and_the_reason_where_the_build_fails(run, url, server, archive):
    server.states = [{"state": "FAILED", "reason": "op Unique (ranker.py:41) has no converter"}]

    answer = run("register", "fresh", archive, "--url", url)

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "op Unique (ranker.py:41) has no converter" in answer.stderr


def test_register_exits_with_1_where_there_is_nothing_to_register(run, url, server):
    answer = run("register", "fresh", "no_such_module_at_all:predict", "--url", url)

    assert answer.exit_code == 1
    assert "there is no module 'no_such_module_at_all'" in answer.stderr
    assert [method for method, *_ in server.requests if method != "GET"] == []


def test_register_says_that_there_is_no_server_before_it_loads_the_function(run, tmp_path):
    path = tmp_path / "slow.py"
    path.write_text("raise AssertionError('loaded')\n")

    answer = run("register", "slow", f"{path}:predict", "--url", f"http://127.0.0.1:{free_port()}")

    assert answer.exit_code == 3
    assert "is the server running there?" in answer.stderr


def test_register_on_the_server_sends_the_import_path(run, url, server):
    answer = run("register", "digits", "models.digits:predict", "--on-server", "--url", url)

    assert answer.exit_code == 0
    assert json.loads(server.requests[0][3]) == {"import_path": "models.digits:predict"}


def test_register_sends_a_source_file_with_its_weights(run, url, server, tmp_path):
    (tmp_path / "scorer.py").write_text("def score(x): return x\n")
    np.savez(tmp_path / "w.npz", w=np.ones(3))

    answer = run(
        *("register", "scorer", "--source", str(tmp_path / "scorer.py"), "--weights", str(tmp_path / "w.npz")),
        *("--function", "score", "--url", url),
    )

    assert answer.exit_code == 0, answer.stderr
    form = server.last_parts()
    assert form["source"][1] == b"def score(x): return x\n"
    assert form["weights"][1] == (tmp_path / "w.npz").read_bytes()


def test_register_takes_a_target_or_a_source(run, url, server):
    assert run("register", "scorer", "--url", url).exit_code == 2
    assert run("register", "scorer", "models.digits:predict", "--weights", "w.npz", "--url", url).exit_code == 2
    assert server.requests == []


def test_the_environment_names_server_and_token(run, url, server):
    server.token = "secret"

    assert run("models", "--url", url).exit_code == 4
    assert run("models", env={"ROWWISE_URL": url, "ROWWISE_TOKEN": "secret"}).exit_code == 0


def test_certificate_sums_up_or_prints_the_whole(run, url):
    told = run("certificate", "double", "--costs", "--url", url).stdout
    whole = run("certificate", "double", "--json", "--url", url).stdout

    assert "1 run once per row" in told
    assert "no converter [v3]" in told
    assert "Time for a row" in told
    assert json.loads(whole)["summary"]["looped"] == 1
    both = json.loads(run("certificate", "double", "--json", "--costs", "--url", url).stdout)
    assert set(both) == {"certificate", "costs"}


def test_serve_has_an_option_for_every_setting():
    # A list of tables is no option.
    assert option_names("serve") - {"help"} == set(Settings.model_fields) - {"tokens"}


def test_only_options_that_were_given_override_the_environment(monkeypatch):
    monkeypatch.setenv("ROWWISE_PORT", "9000")
    monkeypatch.setenv("ROWWISE_QUEUE_ROWS", "7")

    settings = settings_from({"port": None, "queue_rows": 9, "models": ["a=b:c", "d=e:f"], "import_packages": []})

    assert (settings.port, settings.queue_rows, settings.host) == (9000, 9, "127.0.0.1")
    assert settings.models == ("a=b:c", "d=e:f")
    assert settings.import_packages == ()


def test_serve_names_the_option_that_is_out_of_range(run):
    answer = run("serve", "--port", "70000")

    assert "--port" in answer.stderr
    assert "ROWWISE_PORT" in answer.stderr
    assert "65535" in answer.stderr


def test_serve_hands_the_settings_to_the_server(run, monkeypatch, tmp_path):
    class ServerDouble:
        """Stands for ``server.app``; remembers what it was told to serve."""

        def __init__(self) -> None:
            self.served: list[Settings] = []

        def serve(self, settings: Settings) -> None:
            self.served.append(settings)

    double = ServerDouble()
    monkeypatch.setitem(sys.modules, "server.app", double)

    answer = run(
        *("serve", "--port", 0, "--store", tmp_path, "--token", "secret", "--model", "digits=models.digits:predict"),
        *("--import-package", "models", "--protect-predict", "--grace-s", 5),
    )

    assert answer.exit_code == 0, answer.output
    (settings,) = double.served
    assert (settings.port, settings.store, settings.protect_predict, settings.grace_s) == (0, tmp_path, True, 5.0)
    assert settings.models == ("digits=models.digits:predict",)
    assert settings.token is not None
    assert settings.token.get_secret_value() == "secret"


def test_predict_asks_for_a_derivative(run, url, server):
    server.script = [
        (200, {"Content-Type": "application/json"}, json.dumps(METADATA).encode()),
        (200, {"Content-Type": "application/json"}, b'{"predictions": [[1.5, 2.0]]}'),
    ]
    answer = run(
        "predict", "double", "--json", "[1, 2]", "--derivative", "jacobian", "--output", "y", "--wrt", "x", "--url", url
    )

    assert (answer.exit_code, json.loads(answer.stdout)) == (0, [1.5, 2.0])
    assert server.paths()[-1] == "POST /v1/models/double:jacobian"
    assert json.loads(server.requests[-1][3]) == {"output": "y", "wrt": ["x"], "instances": [[1, 2]]}


def test_predict_wants_to_know_which_kind_of_derivative(run, url):
    answer = run("predict", "double", "--json", "1", "--wrt", "x", "--url", url)

    assert answer.exit_code == 2
    assert "--derivative" in answer.stderr
