"""What ships beside the code names things that exist, and keeps the promises that its comments make."""

from __future__ import annotations

import http.server
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from packaging.requirements import Requirement

from scripts.run_image_steps import in_context, parse

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
# Ranges of packages that do not go together by what they ask for.
RECIPES = ROOT / "requirements" / "recipes.in"
# What only the manifests' schemas come in.
KUBERNETES = ROOT / "requirements" / "kubernetes.in"


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


def locked(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9][a-z0-9-]*)(?:\[[^\]]*\])?==(\S+)", path.read_text(), re.MULTILINE))


def ignore_lines() -> list[str]:
    return [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and not line.startswith("#")]


def test_every_path_that_compose_mounts_exists() -> None:
    mounts = [volume for service in compose()["services"].values() for volume in service.get("volumes", [])]
    local = [mount.split(":")[0] for mount in mounts if mount.startswith(".")]
    assert local
    assert [path for path in local if not (ROOT / path).exists()] == []
    named = {mount.split(":")[0] for mount in mounts if not mount.startswith(".")}
    assert named == set(compose()["volumes"])


def test_images_are_pinned_and_ports_stay_on_loopback() -> None:
    services = compose()["services"]
    foreign = [service["image"] for service in services.values() if "build" not in service]
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in foreign), foreign
    ports = [port for service in services.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports), ports


def test_the_engine_waits_longer_than_the_server_takes_to_stop() -> None:
    from server.settings import Settings

    grace_s = Settings.model_fields["grace_s"].default
    assert float(compose()["services"]["server"]["stop_grace_period"].removesuffix("s")) > grace_s


def test_compose_builds_stages_that_the_dockerfile_has() -> None:
    stages = {stage.name for stage in parse((ROOT / "Dockerfile").read_text())}
    targets = {service["build"]["target"] for service in compose()["services"].values() if "build" in service}
    assert targets <= stages


def test_services_reach_each_other_by_names_and_ports_that_there_are() -> None:
    services = compose()["services"]
    written = [json.dumps(service) for service in services.values()]
    written += [path.read_text() for path in sorted((ROOT / "deploy").rglob("*.yml")) if "test" not in path.name]
    named = {
        (host, int(port))
        for text in written
        for host, port in re.findall(r"""(?:http://|["'])([a-z]+):(\d+)["'/\s]""", text)
    }
    assert {("server", 8000), ("prometheus", 9090)} <= named
    for host, port in named:
        inside = [int(entry.rsplit(":", 1)[1]) for entry in services[host]["ports"]]
        assert port in inside, f"{host}:{port}"
    depended = {name for service in services.values() for name in service.get("depends_on", ())}
    assert depended <= set(services)
    stages = {stage.name: stage for stage in parse((ROOT / "Dockerfile").read_text())}
    for name, service in services.items():
        if "build" in service:
            instructions = stages[service["build"]["target"]].instructions
            exposed = {int(argument) for instruction, argument in instructions if instruction == "EXPOSE"}
            assert {int(entry.rsplit(":", 1)[1]) for entry in service["ports"]} == exposed, name
            declared = {
                argument.partition("=")[0]
                for stage in stages.values()
                for instruction, argument in stage.instructions
                if instruction == "ARG"
            }
            assert set(service["build"].get("args", {})) <= declared
    needs = dict(stages["server"].instructions)
    assert needs["VOLUME"] in {mount.split(":")[1] for mount in services["server"]["volumes"]}


def test_every_variable_that_compose_sets_is_a_setting() -> None:
    from server.settings import Settings

    for line in compose()["services"]["server"]["environment"]:
        assert line.partition("=")[0].removeprefix("ROWWISE_").lower() in Settings.model_fields


def test_what_the_dockerfile_copies_is_in_the_build_context() -> None:
    ignore = ignore_lines()
    for stage in parse((ROOT / "Dockerfile").read_text()):
        for instruction, argument in stage.instructions:
            if instruction == "COPY" and not argument.startswith("--from="):
                *sources, _ = argument.split()
                for source in sources:
                    assert (ROOT / source).exists(), source
                    assert source == "." or in_context(source, ignore), source


def test_the_application_is_a_layer_upon_that_of_the_packages_which_no_change_of_it_makes_anew() -> None:
    stages = {stage.name: stage for stage in parse((ROOT / "Dockerfile").read_text())}
    copied = [argument.split()[0] for name, argument in stages["server"].instructions if name == "COPY"]
    assert copied[:2] == ["--from=packages", "--from=application"]
    needed = {path for name, argument in stages["packages"].instructions if name == "COPY" for path in argument.split()}
    assert {path.split("/")[0] for path in needed} == {"scripts", "requirements"}


def test_the_build_context_holds_sources_and_nothing_else() -> None:
    ignore = ignore_lines()
    kept = ["server/build/limits.py", "README.md", "requirements/image-cpu.lock", "models/digits.py"]
    left_out = [".git/config", ".venv/bin/python", "tests/deploy/test_files.py", "server/__pycache__/app.pyc", "x.pyc"]
    assert [path for path in kept if not in_context(path, ignore)] == []
    assert [path for path in left_out if in_context(path, ignore)] == []


def test_the_image_runs_as_a_user_and_is_its_own_main_process() -> None:
    server = parse((ROOT / "Dockerfile").read_text())[-1]
    assert server.name == "server", "the last stage is what `docker build .` makes"
    instructions = dict(server.instructions)
    assert int(instructions["USER"]) > 0
    assert instructions["CMD"].startswith("["), "the shell form would swallow SIGTERM"
    assert "HEALTHCHECK" in instructions


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_locks_hold_exact_releases_with_hashes_and_name_no_index(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert "index-url" not in text
    entries = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert [
        entry.split()[0] for entry in entries if "==" not in entry.split()[0] or "--hash=sha256:" not in entry
    ] == []


def test_locks_keep_within_the_ranges_that_they_are_made_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    runtime = project["project"]["dependencies"]
    asked = {
        "build": project["build-system"]["requires"],
        # TensorFlow's build for processors alone, in place of the other.
        "image-cpu": [line.replace("tensorflow>", "tensorflow-cpu>") for line in runtime + extras["models"]],
        "image-gpu": runtime + extras["models"] + extras["gpu"],
        "loadtest": runtime + extras["models"] + extras["loadtest"],
        "bench": extras["bench"],
        "race": extras["race"],
        "ray": extras["ray"],
        "recipes": [line for line in RECIPES.read_text().splitlines() if not line.startswith("#")],
        "kubernetes": [line for line in KUBERNETES.read_text().splitlines() if not line.startswith("#")],
        "dev": runtime + [line for name in ("models", "loadtest", "docs", "dev") for line in extras[name]],
    }
    assert set(asked) == {path.stem for path in LOCKS}
    for name, lines in asked.items():
        versions = locked(ROOT / "requirements" / f"{name}.lock")
        for requirement in map(Requirement, lines):
            if requirement.name != "rowwise":
                assert requirement.specifier.contains(versions[requirement.name]), f"{name}.lock: {requirement}"


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / ".ci" / "run"]
    named = {
        target
        for document in documents
        for target in re.findall(r"(?:`|\$ |^step )make (?:--[\w=-]+ )*([a-z-]+)", document.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "check", "load"} <= named
    assert named - targets == set()


def test_every_relative_link_of_a_document_leads_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {link}"
        for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / link).exists()
    ]
    assert broken == []


# The image's health check, against a server that answers what it is told to.


@contextmanager
def scripted_server(status: int, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v2/health/ready" else 404)
            self.end_headers()
            self.wfile.write(b'{"error": "model digits is being built"}')

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it so)
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def health_check(port: int, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ROWWISE_PORT": str(port), "http_proxy": "http://127.0.0.1:9", **settings}
    command = [sys.executable, str(ROOT / "deploy" / "health_check.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_a_ready_server_is_healthy_and_no_proxy_is_asked() -> None:
    with scripted_server(200) as port:
        assert health_check(port).returncode == 0


def test_a_ready_server_with_tls_is_healthy_whatever_its_certificate_names(tmp_path: Path) -> None:
    made = trustme.CA().issue_cert("gpu1.example.org")
    made.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem")
    with scripted_server(200, tls=context) as port:
        done = health_check(port, ROWWISE_TLS_CERTIFICATE="server.pem")
        assert done.returncode == 0, done.stdout
        assert health_check(port).returncode == 1


def test_a_server_that_is_not_ready_is_unhealthy_and_says_why() -> None:
    with scripted_server(503) as port:
        done = health_check(port)
    assert done.returncode == 1
    assert "503" in done.stdout
    assert "digits is being built" in done.stdout


def test_no_server_is_unhealthy() -> None:
    with scripted_server(200) as port:
        pass
    assert health_check(port).returncode == 1
