"""The Kubernetes manifests: against the schemas of Kubernetes and KServe where they are installed, and what they say.

`make kubernetes` installs both, into a directory of their own.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from server.metrics import Metrics
from server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
SCHEMAS = ROOT / ".cache" / "kubernetes"

needs_schemas = pytest.mark.skipif(
    not (SCHEMAS / "kserve").is_dir(), reason="the schemas are not installed: make kubernetes"
)


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def all_of(kind: str) -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from (document for document in documents(path) if document["kind"] == kind)


def one(kind: str, path: Path = ROOT / "deploy" / "kubernetes" / "rowwise.yaml") -> dict[str, Any]:
    (found,) = [document for document in documents(path) if document["kind"] == kind]
    return found


def containers() -> list[dict[str, Any]]:
    (deployment,) = all_of("Deployment")
    (runtime,) = all_of("ServingRuntime")
    return [*deployment["spec"]["template"]["spec"]["containers"], *runtime["spec"]["containers"]]


# Against the schemas.


@cache
def kubernetes() -> Any:
    sys.path.insert(0, str(SCHEMAS))
    try:
        return importlib.import_module("kubernetes_validate")
    finally:
        sys.path.remove(str(SCHEMAS))


@cache
def definitions() -> dict[str, Any]:
    folder = max((SCHEMAS / "kubernetes_validate" / "kubernetes-json-schema").glob("v*-local-strict"))
    found: dict[str, Any] = json.loads((folder / "_definitions.json").read_text())
    return found


@cache
def model(name: str) -> tuple[dict[str, str], frozenset[str]]:
    """Return the types of a KServe model's fields by their JSON names, and those that must be there.

    They are read from its source: importing any of it imports KServe's server.
    """
    file = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() + ".py"
    text = (SCHEMAS / "kserve" / "models" / file).read_text()
    values = {
        target.id: ast.literal_eval(node.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name)
        if target.id in {"openapi_types", "attribute_map"}
    }
    names, types = values["attribute_map"], values["openapi_types"]
    required = re.findall(r"Invalid value for `(\w+)`, must not be `None`", text)
    return {names[field]: types[field] for field in types}, frozenset(names[field] for field in required)


def faults(value: Any, kind: str, where: str) -> Iterator[str]:
    """Say what of a value is not of a type as KServe's models name it."""
    if listed := re.fullmatch(r"list\[(.+)\]", kind):
        if not isinstance(value, list):
            yield f"{where}: expected a list"
            return
        for index, each in enumerate(value):
            yield from faults(each, listed[1], f"{where}[{index}]")
    elif mapped := re.fullmatch(r"dict\(str, (.+)\)", kind):
        for key, each in value.items():
            yield from faults(each, mapped[1], f"{where}.{key}")
    elif kind in {"str", "bool", "int", "float"}:
        expected = {"str": str, "bool": bool, "int": int, "float": (int, float)}[kind]
        if not isinstance(value, expected) or (kind == "int" and isinstance(value, bool)):  # type: ignore[arg-type]
            yield f"{where}: {value!r} is no {kind}"
    elif re.match(r"V1(alpha|beta)", kind):
        fields, required = model(kind)
        yield from (f"{where}: {name!r} is missing" for name in required - value.keys())
        for name, each in value.items():
            if name in fields:
                yield from faults(each, fields[name], f"{where}.{name}")
            else:
                yield f"{where}: {kind} has no {name!r}"
    elif kind != "object":
        names = [name for name in definitions()["$defs"] if name.endswith(f".v1.{kind.removeprefix('V1')}")]
        assert names, f"{kind} is defined nowhere"
        schema = {**definitions(), "$ref": f"#/$defs/{min(names)}"}
        found = jsonschema.Draft202012Validator(schema).iter_errors(value)
        yield from (f"{where}: {error.message}" for error in found)


def of_kserve(document: dict[str, Any]) -> str | None:
    group, _, version = document["apiVersion"].partition("/")
    return f"V{version[1:]}{document['kind']}" if group == "serving.kserve.io" else None


@needs_schemas
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_each_document_fits_its_schema_and_has_nothing_besides(path: Path) -> None:
    assert documents(path)
    for document in documents(path):
        kind = of_kserve(document)
        if kind is None:
            kubernetes().validate(document, kubernetes().latest_version(), strict=True)
        else:
            assert list(faults(document, kind, kind)) == []


@needs_schemas
def test_the_checks_see_faults() -> None:
    deployment = one("Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(Exception, match="livenessprobe"):
        kubernetes().validate(deployment, kubernetes().latest_version(), strict=True)
    (runtime,) = all_of("ServingRuntime")
    (service,) = all_of("InferenceService")
    runtime["spec"]["multiModel"] = "no"
    runtime["spec"]["containers"][0]["ports"] = [{"containerPort": "8080"}]
    del runtime["spec"]["containers"][0]["name"]
    service["spec"]["predictor"]["replicas"] = 2
    said = [
        *faults(runtime, "V1alpha1ServingRuntime", "runtime"),
        *faults(service, "V1beta1InferenceService", "service"),
    ]
    assert "runtime.spec.multiModel: 'no' is no bool" in said
    assert any("'8080' is not of type" in fault for fault in said)
    assert any("'name' is a required property" in fault for fault in said)
    assert "service.spec.predictor: V1beta1PredictorSpec has no 'replicas'" in said


# What they say.


def test_containers_may_do_nothing_that_they_need_not() -> None:
    for container in containers():
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"].keys() == {"requests", "limits"}
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]
    pod = one("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["automountServiceAccountToken"] is False


def test_the_pod_outlives_the_servers_own_grace_period() -> None:
    pod = one("Deployment")["spec"]["template"]["spec"]
    told_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    settings = tomllib.loads(one("ConfigMap")["data"]["rowwise.toml"])
    assert pod["terminationGracePeriodSeconds"] > settings["grace_s"] + told_s


def test_the_settings_are_settings_and_no_secret_is_among_them() -> None:
    settings = tomllib.loads(one("ConfigMap")["data"]["rowwise.toml"])
    Settings(**settings)
    assert not {"token", "tokens"} & settings.keys()
    sources = one("Deployment")["spec"]["template"]["spec"]["containers"][0]["envFrom"]
    assert {source["secretRef"]["name"] for source in sources} == {"rowwise-tokens", "rowwise-bucket"}


def test_what_refers_to_something_finds_it() -> None:
    deployment = one("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    service = one("Service")
    assert service["spec"]["selector"].items() <= labels.items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
    assert one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for scaler in all_of("HorizontalPodAutoscaler"):
        assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    (runtime,) = all_of("ServingRuntime")
    (inference,) = all_of("InferenceService")
    assert inference["spec"]["predictor"]["model"]["runtime"] == runtime["metadata"]["name"]
    formats = [each["name"] for each in runtime["spec"]["supportedModelFormats"]]
    assert inference["spec"]["predictor"]["model"]["modelFormat"]["name"] in formats


def test_probes_ask_for_what_the_server_answers() -> None:
    paths = {
        probe["httpGet"]["path"]
        for container in containers()
        for name, probe in container.items()
        if name.endswith("Probe")
    }
    assert paths == {"/v2/health/ready", "/v2/health/live"}


def test_the_autoscaler_goes_by_a_metric_that_the_server_has() -> None:
    by_rows = one("HorizontalPodAutoscaler", ROOT / "deploy" / "kubernetes" / "autoscale_by_rows.yaml")
    named = [each["pods"]["metric"]["name"] for each in by_rows["spec"]["metrics"] if each["type"] == "Pods"]
    assert named
    metrics = Metrics()
    metrics.of_version("digits", 1).queue_depth(2)
    assert set(named) <= {sample.name for family in metrics.registry.collect() for sample in family.samples}


def test_every_command_is_one_of_the_image() -> None:
    for container in containers():
        assert container["args"][:2] == ["rowwise", "serve"]
        options = [argument for argument in container["args"] if argument.startswith("--")]
        known = {name.replace("_", "-") for name in Settings.model_fields}
        assert {option.removeprefix("--") for option in options} <= known
