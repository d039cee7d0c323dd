"""Run the steps of the Dockerfile in a clean directory, without a container engine.

The steps are read from the Dockerfile itself, so this can't drift from it: the build context is filtered by
``.dockerignore``, RUN commands run, the environment is ENV's, the process is CMD's, the health check
HEALTHCHECK's. Absolute paths of the image become paths below the directory. What that leaves out is printed:
the base image, and adding a user to the machine.

The server is then used as a container's would be: it builds a model, answers, gets SIGTERM and must exit with 0,
having written nothing outside of its volume and the temporary directory.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
MODEL = "digits"
READY_WITHIN_S = 240.0
EXIT_WITHIN_S = 40.0
#: Commands that would change the machine that this runs on.
ENGINE_ONLY = ("useradd", "groupadd", "apt-get")


@dataclass
class Stage:
    """One FROM and what follows it."""

    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)


def parse(text: str) -> list[Stage]:
    """Split a Dockerfile into stages of (instruction, argument); what comes before the first is about base images."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        instruction, argument = line.split(None, 1)
        if instruction == "FROM":
            stages.append(Stage(name=argument.split()[-1]))
        elif stages:
            stages[-1].instructions.append((instruction, argument.strip()))
    return stages


def in_context(path: str, ignore: list[str]) -> bool:
    """Return whether ``.dockerignore`` lets a file into the build context: the last line that matches decides."""
    kept = True
    parents = ["/".join(path.split("/")[: i + 1]) for i in range(path.count("/") + 1)]
    for line in ignore:
        pattern = line.removeprefix("!").removeprefix("**/")
        candidates = [Path(parent).name for parent in parents] if "**/" in line else parents
        if any(fnmatch.fnmatch(candidate, pattern) for candidate in candidates):
            kept = line.startswith("!")
    return kept


def export_context(to: Path) -> None:
    """Copy the build context: the files that git knows or would add, without those that are ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    ignore = [line for line in (REPOSITORY / ".dockerignore").read_text().split("\n") if line and line[0] != "#"]
    for name in listed:
        if in_context(name, ignore) and (REPOSITORY / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, to / name)


class Image:
    """A directory that stands for the image's file system, and the state that instructions leave behind."""

    def __init__(self, root: Path, context: Path) -> None:
        self.root = root
        self.context = context
        self.directory = root
        self.environment: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.user: int | None = None
        self.command: list[str] = []
        self.health_check: list[str] = []
        self.volumes: list[Path] = []

    def place(self, text: str) -> str:
        """Put the image's absolute paths below the directory."""
        return re.sub(r"(?<![\w./])/(?=(?:src|opt|var/lib)\b)", f"{self.root}/", text)

    def run_stage(self, stage: Stage) -> None:
        """Carry out one stage's instructions."""
        self.directory, self.environment, self.user = self.root, {}, None
        for instruction, argument in stage.instructions:
            print(f"[{stage.name}] {instruction} {argument}", flush=True)
            getattr(self, f"do_{instruction.lower()}")(argument)

    def do_workdir(self, argument: str) -> None:
        self.directory = Path(self.place(argument))
        self.directory.mkdir(parents=True, exist_ok=True)

    def do_arg(self, argument: str) -> None:
        name, _, default = argument.partition("=")
        self.arguments[name] = default

    def do_env(self, argument: str) -> None:
        for assignment in shlex.split(argument):
            name, _, value = assignment.partition("=")
            self.environment[name] = self.place(value).replace("$PATH", os.environ["PATH"])

    def do_copy(self, argument: str) -> None:
        *sources, target = shlex.split(argument)
        if sources[0].startswith("--from="):
            # All stages share one directory, so that it is there, or in another place of it.
            made, wanted = Path(self.place(sources[1])), Path(self.place(target))
            if made != wanted:
                shutil.copytree(made, wanted, symlinks=True, dirs_exist_ok=True)
                shutil.rmtree(made)
            return
        destination = Path(self.place(target)) if target.startswith("/") else self.directory / target
        for source in (self.context / name for name in sources):
            if source.is_dir():
                shutil.copytree(source, destination, dirs_exist_ok=True)
            else:
                file = destination / source.name if target.endswith("/") else destination
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, file)

    def do_run(self, argument: str) -> None:
        for command in argument.split("&&"):
            program = command.split()[0]
            if program in ENGINE_ONLY:
                print(f"    left out: {program} would change this machine")
            elif "--owner" in command and os.geteuid() != 0:
                print(f"    left out: {program} --owner needs root")
            else:
                # Most packages are in the cache since .venv was made: they are neither downloaded nor unpacked again.
                environment = {**os.environ, **self.environment, **self.arguments, "KEEP_PACKAGE_CACHE": "1"}
                subprocess.run(["/bin/sh", "-c", self.place(command)], cwd=self.directory, check=True, env=environment)

    def do_user(self, argument: str) -> None:
        self.user = int(argument)

    def do_volume(self, argument: str) -> None:
        self.volumes.append(Path(self.place(argument)))

    def do_expose(self, argument: str) -> None:
        self.environment.setdefault("ROWWISE_PORT", argument)

    def do_stopsignal(self, argument: str) -> None:
        if argument != "SIGTERM":
            raise ValueError(f"STOPSIGNAL {argument}: the server stops in order at SIGTERM")

    def do_healthcheck(self, argument: str) -> None:
        self.health_check = json.loads(self.place(argument[argument.index("[") :]))

    def do_cmd(self, argument: str) -> None:
        # JSON alone: a shell in between would keep SIGTERM for itself.
        self.command = json.loads(argument)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def usable_user(image: Image) -> int | None:
    """Return the image's user if this process may become it and its Python runs as it."""
    if image.user is None or os.geteuid() != 0:
        print(f"    as the user {os.geteuid()}: becoming {image.user} needs root")
        return None
    python = str(image.root / "opt/rowwise/bin/python")
    try:
        subprocess.run([python, "-c", ""], check=True, user=image.user, group=image.user, extra_groups=[], cwd="/")
    except (OSError, subprocess.CalledProcessError):
        print(f"    as root: user {image.user} may not read this machine's Python")
        return None
    return image.user


def snapshot(directory: Path, without: list[Path]) -> dict[str, int]:
    """Return the time of the last change of each file, volumes left out."""
    return {
        str(path): path.lstat().st_mtime_ns
        for path in directory.rglob("*")
        if not any(path.is_relative_to(volume) for volume in without)
    }


def predict(port: int) -> int:
    """Ask for one real digit and return the most probable class."""
    body = json.dumps({"instances": [[0.0] * 64]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models/{MODEL}:predict", data=body)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as response:
        probabilities = json.load(response)["predictions"][0]
    if len(probabilities) != 10 or abs(sum(probabilities) - 1) > 1e-3:
        raise SystemExit(f"wrong answer: {probabilities}")
    return len(probabilities)


def use(image: Image) -> None:
    """Start the server as the image would, wait for its health check, ask it, and stop it with SIGTERM."""
    port = free_port()
    temporary = image.root / "tmp"
    temporary.mkdir(mode=0o777)
    temporary.chmod(0o1777)
    environment = image.environment | {
        "TMPDIR": str(temporary),
        "ROWWISE_HOST": "127.0.0.1",
        "ROWWISE_PORT": str(port),
        "ROWWISE_GRPC_PORT": str(free_port()),
        "ROWWISE_MODELS": f"{MODEL}=models.{MODEL}:predict",
    }
    user = usable_user(image)
    before = snapshot(image.root, [*image.volumes, temporary])
    print(f"[run] {shlex.join(image.command)} on port {port}", flush=True)
    program = shutil.which(image.command[0], path=environment["PATH"])
    if program is None:
        raise SystemExit(f"{image.command[0]} is not in the image")
    server = subprocess.Popen(
        [program, *image.command[1:]],
        cwd=image.directory,
        env=environment,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        start_new_session=True,
    )
    try:
        started = time.monotonic()
        while (check := health(image, environment)).returncode != 0:
            if server.poll() is not None:
                raise SystemExit(f"the server exited with {server.returncode}")
            if time.monotonic() - started > READY_WITHIN_S:
                raise SystemExit(f"not ready after {READY_WITHIN_S:.0f} s: {check.stdout.strip()}")
            time.sleep(0.5)
        print(f"[run] healthy after {time.monotonic() - started:.1f} s, model {MODEL!r} built and warm")
        print(f"[run] one prediction: {predict(port)} probabilities")
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=EXIT_WITHIN_S)
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
    if code != 0:
        raise SystemExit(f"SIGTERM: the server exited with {code}, not 0")
    after = snapshot(image.root, [*image.volumes, temporary])
    if changed := sorted(path for path in after.keys() | before.keys() if after.get(path) != before.get(path)):
        raise SystemExit(f"a read-only container would have failed, the server wrote {changed[:5]}")
    print("[run] SIGTERM: exited with 0, nothing written outside of the volume and the temporary directory")


def health(image: Image, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the image's health check once."""
    program = shutil.which(image.health_check[0], path=environment["PATH"]) or image.health_check[0]
    return subprocess.run(
        [program, *image.health_check[1:]], env=environment, check=False, capture_output=True, text=True, timeout=10
    )


def main() -> int:
    """Build and use the image that ``docker build .`` would make; ``--export DIRECTORY`` writes its context alone."""
    if sys.argv[1:2] == ["--export"]:
        export_context(Path(sys.argv[2]))
        return 0
    stages = {stage.name: stage for stage in parse((REPOSITORY / "Dockerfile").read_text())}
    with tempfile.TemporaryDirectory(prefix="rowwise-image-") as directory:
        root = Path(directory).resolve()
        root.chmod(0o755)
        context = root / "context"
        context.mkdir()
        export_context(context)
        image = Image(root, context)
        for name in ("packages", "application", "server"):
            image.run_stage(stages[name])
        use(image)
    print("image steps: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
