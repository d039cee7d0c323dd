"""Measure an image that buildah has built, look for what must not be in it, and run the server in it.

    python -m scripts.try_image MOUNTED INSPECTED STORAGE        (scripts/build_image_here.sh calls it)

The server runs as the image says (its command, user, environment, health check) in bubblewrap: the image is its root,
which can't be written, it is process 1, has no privileges, and beside its volume a temporary directory in memory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.run_image_steps import EXIT_WITHIN_S, MODEL, READY_WITHIN_S, free_port, predict

MOST_BYTES = 1_500_000_000
#: Programs that make programs, or install them.
UNWANTED = ("as", "c++", "cargo", "cc", "clang", "cpp", "g++", "gcc", "go", "ld", "make", "rustc", "strip", "tcc", "uv")
#: In the real base image pip lies elsewhere, and comes with Python.
UNWANTED_HERE = ("opt/rowwise/bin/pip", "root/.cache", "tmp/uv", "src", "var/lib/rowwise/.cache")


class Mounted:
    """The image's files and what it says of itself."""

    def __init__(self, root: Path, inspected: dict[str, Any]) -> None:
        self.root = root
        self.config: dict[str, Any] = inspected["Docker"]["config"]
        self.history: list[dict[str, Any]] = inspected["OCIv1"]["history"]
        self.environment: dict[str, str] = dict(line.split("=", 1) for line in self.config["Env"])

    def within(
        self, *command: str, volume: Path, environment: dict[str, str], options: tuple[str, ...] = ()
    ) -> list[str]:
        """Return the command that runs another one in the image, as its user."""
        user = self.config["User"]
        return [
            "bwrap", "--ro-bind", str(self.root), "/", "--proc", "/proc", "--dev", "/dev",
            "--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", "/dev/shm",
            "--bind", str(volume), next(iter(self.config["Volumes"])), "--chdir", self.config["WorkingDir"],
            "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", *options, "--clearenv",
            *(part for name, value in (self.environment | environment).items() for part in ("--setenv", name, value)),
            # It becomes what it starts: no process stays in between.
            "setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs", "--bounding-set=-all",
            "--inh-caps=-all", *command,
        ]  # fmt: skip


def measure(image: Mounted, storage: Path) -> None:
    """Print the size of each layer; too much in all is an error."""
    layers = json.loads((storage / "overlay-layers" / "layers.json").read_text())
    by_id = {layer["id"]: layer for layer in layers}
    (top,) = (
        one
        for one in json.loads((storage / "overlay-images" / "images.json").read_text())
        if "localhost/rowwise:here" in one.get("names", ())
    )
    chain: list[dict[str, Any]] = []
    layer = by_id.get(top["layer"])
    while layer is not None:
        chain.insert(0, layer)
        layer = by_id.get(layer.get("parent", ""))
    made = [entry.get("created_by", "") for entry in image.history if not entry.get("empty_layer")]
    sizes = [layer.get("diff-size", 0) for layer in chain]
    for size, by in zip(sizes, made, strict=False):
        print(f"[size] {size / 1e6:7.1f} MB  {' '.join(by.removeprefix('/bin/sh -c ').split())[:80]}")
    print(f"[size] {sum(sizes) / 1e6:7.1f} MB  in all, {sum(sizes[1:]) / 1e6:.1f} MB of it above the base image")
    if sum(sizes) > MOST_BYTES:
        raise SystemExit(f"the image has more than {MOST_BYTES / 1e6:.0f} MB")


def look(image: Mounted) -> None:
    """Errors: SystemExit for what must not be in an image that only serves."""
    path = [image.root / directory.lstrip("/") for directory in image.environment["PATH"].split(":")]
    found = [str(directory / name) for directory in path for name in UNWANTED if os.path.lexists(directory / name)]
    found += [name for name in UNWANTED_HERE if (image.root / name).exists() and any((image.root / name).iterdir())]
    packages = image.root / "opt/rowwise/lib/python3.11/site-packages"
    found += [name for name in ("tests", "benchmarks", "pip", "tensorflow/include") if (packages / name).exists()]
    if found:
        raise SystemExit(f"these have no place in the image: {found}")
    print("[look] no compiler, no installer, no cache, no tests")


def use(image: Mounted, volume: Path) -> None:
    """Start the server, wait for its health check, ask it, and stop it with SIGTERM. Errors: SystemExit."""
    port = free_port()
    environment = {
        "ROWWISE_HOST": "127.0.0.1",
        "ROWWISE_PORT": str(port),
        "ROWWISE_GRPC_PORT": str(free_port()),
        "ROWWISE_MODELS": f"{MODEL}=models.{MODEL}:predict",
    }
    check = image.within(*image.config["Healthcheck"]["Test"][1:], volume=volume, environment=environment)
    reader, writer = os.pipe()
    command = image.within(
        *image.config["Cmd"],
        volume=volume,
        environment=environment,
        options=("--as-pid-1", "--info-fd", str(writer)),
    )
    server = subprocess.Popen(command, pass_fds=(writer,))
    os.close(writer)
    with os.fdopen(reader) as told:
        pid = json.load(told)["child-pid"]
    try:
        started_s = time.monotonic()
        while (probe := subprocess.run(check, check=False, capture_output=True, text=True)).returncode != 0:
            if server.poll() is not None:
                raise SystemExit(f"the server exited with {server.returncode}")
            if time.monotonic() - started_s > READY_WITHIN_S:
                raise SystemExit(
                    f"not ready after {READY_WITHIN_S:.0f} s: {probe.stdout.strip()} {probe.stderr.strip()}"
                )
            time.sleep(0.5)
        status = Path(f"/proc/{pid}/status").read_text()
        facts = {line.split(":")[0]: line.split()[1:] for line in status.splitlines()}
        print(f"[run] healthy after {time.monotonic() - started_s:.0f} s, model {MODEL!r} built and warm")
        print(
            f"[run] process {facts['NSpid'][-1]} of its own, user {facts['Uid'][0]}, capabilities {facts['CapEff'][0]}"
        )
        if facts["NSpid"][-1] != "1" or facts["Uid"][0] != image.config["User"] or int(facts["CapEff"][0], 16):
            raise SystemExit("it has to be process 1, of the image's user, without capabilities")
        print(f"[run] one prediction: {predict(port)} probabilities")
        stopping_s = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        code = server.wait(timeout=EXIT_WITHIN_S)
        print(f"[run] SIGTERM: exited with {code} after {time.monotonic() - stopping_s:.1f} s")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    if code != 0:
        raise SystemExit(f"SIGTERM: the server exited with {code}, not 0")


def main(mounted: str, inspected: str, storage: str) -> None:
    """Do all of it."""
    image = Mounted(Path(mounted), json.loads(Path(inspected).read_text()))
    measure(image, Path(storage))
    look(image)
    volume = Path(tempfile.mkdtemp(prefix="rowwise-volume-"))
    try:
        os.chown(volume, int(image.config["User"]), int(image.config["User"]))
        use(image, volume)
    finally:
        shutil.rmtree(volume)
    print("image here: passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
