"""Source text that does what it likes, for as long as it can: the jail is what is tried."""

from __future__ import annotations

import base64
import io
import pickle
import time
from pathlib import Path

import httpx
import numpy as np

from loadtests.attack.case import Harm, attack
from loadtests.attack.target import Listener, Target
from loadtests.processes import descendants

__all__: list[str] = []

_AREA = "intake: source"
_HARMLESS = "\ndef predict(x):\n    return x\n"


def _met(target: Target, answer: httpx.Response) -> str:
    """Say how it was met: the build failed with its reason, or it was built and did no harm."""
    assert answer.status_code < 500, f"answered {answer.status_code}: {answer.text[:300]}"
    if answer.status_code < 300:
        return "built, and nothing came of it"
    return target.refused(answer)


def _no_secret(target: Target, answer: httpx.Response) -> None:
    for what in ("in_file", "in_environment", "token"):
        if getattr(target.secrets, what) in answer.text:
            raise Harm(f"the answer holds the secret {what}")
    # Of its own version a build knows the directories.
    if "/models/digits" in answer.text:
        raise Harm("the answer names another model's files")


def _tell(expression: str) -> str:
    """Return source that raises with the value of an expression: a reason is told to who registered."""
    return f"import os, sys, subprocess, glob\nraise RuntimeError({expression})\n"


def _telling(name: str, expression: str) -> None:
    def run(target: Target) -> str:
        text = expression.replace("SECRET_FILE", repr(str(target.secrets.file))).replace(
            "STORE", repr(str(target.store))
        )
        # What it says is what its own code has seen: of the jail's paths it may know.
        answer = target.hand_in(_tell(text), keep=False)
        _no_secret(target, answer)
        return _met(target, answer)

    attack(_AREA, name)(run)


_telling("reads a file of the operator's", "open(SECRET_FILE).read()")
_telling("reads the password file", "open('/etc/shadow').read()")
_telling("tells the environment", "repr(dict(os.environ))")
_telling("reads the server's environment", "open(f'/proc/{os.getppid()}/environ').read()")
_telling(
    "reads the environment of every process",
    "'|'.join(open(p, errors='replace').read() for p in glob.glob('/proc/[0-9]*/environ'))",
)
_telling("reads the server's memory", "open(f'/proc/{os.getppid()}/mem', 'rb').read(10)")
_telling(
    "lists the store", "repr([path[len(STORE):] for path in glob.glob(STORE + '/**', recursive=True)][:90] or 1 / 0)"
)
_telling("runs a shell", "subprocess.run('id; cat ' + SECRET_FILE, shell=True, capture_output=True, text=True).stdout")
_telling("finds an inherited file", "repr([os.readlink(p) for p in glob.glob('/proc/self/fd/*') if os.path.exists(p)])")
_telling(
    "walks from a tuple to every class",
    "repr([c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0]"
    "(['cat', SECRET_FILE], stdout=-1).communicate())",
)


@attack(_AREA, "writes over a file")
def writes(target: Target) -> str:
    """And beside it, and into the store."""
    places = [str(target.secrets.untouched), str(target.secrets.untouched.parent / "new"), str(target.store / "new")]
    before = target.secrets.untouched.read_bytes()
    answer = target.hand_in(
        f"for place in {places!r}:\n    try:\n        open(place, 'w').write('owned')\n"
        "    except OSError:\n        pass\n" + _HARMLESS
    )
    if target.secrets.untouched.read_bytes() != before:
        raise Harm("the file was written over")
    if (target.secrets.untouched.parent / "new").exists() or (target.store / "new").exists():
        raise Harm("a file was made")
    return _met(target, answer)


@attack(_AREA, "connects to a port of this machine")
def connects(target: Target) -> str:
    """Where metadata services and databases listen."""
    with Listener() as listener:
        answer = target.hand_in(
            f"import socket\ntry:\n    socket.create_connection(('127.0.0.1', {listener.port}), 5)\n"
            "except OSError:\n    pass\n" + _HARMLESS
        )
    if listener.n_calls:
        raise Harm("it was called")
    return _met(target, answer)


@attack(_AREA, "asks the server itself, from inside")
def asks_the_server(target: Target) -> str:
    """Callers on the machine may do more than others where there are no tokens."""
    answer = target.hand_in(
        f"import urllib.request\nraise RuntimeError(urllib.request.urlopen({target.url + '/v1/models'!r}, timeout=5)"
        ".read().decode())\n"
    )
    if '"models"' in answer.text:
        raise Harm("it was answered")
    return _met(target, answer)


@attack(_AREA, "fork bomb")
def fork_bomb(target: Target) -> str:
    """For as long as it is let."""
    answer = target.hand_in("import os\nwhile True:\n    os.fork()\n")
    return _met(target, answer)


@attack(_AREA, "100 GB of memory")
def much_memory(target: Target) -> str:
    """Touched, not only asked for."""
    return _met(target, target.hand_in("blocks = [bytearray(2**30) for _ in range(100)]\n" + _HARMLESS))


@attack(_AREA, "fills the disk")
def fills_the_disk(target: Target) -> str:
    """Its own directories, as no other may be written."""
    return _met(
        target,
        target.hand_in(
            "import tempfile\nfile = tempfile.NamedTemporaryFile(delete=False)\nblock = bytes(2**24)\n"
            "for _ in range(100 * 64):\n    file.write(block)\n" + _HARMLESS
        ),
    )


@attack(_AREA, "a trace without an end")
def endless_trace(target: Target) -> str:
    """Python's while, in the function."""
    return _met(target, target.hand_in("def predict(x):\n    while True:\n        x = x + 1\n    return x\n"))


@attack(_AREA, "sleeps for ever")
def sleeps(target: Target) -> str:
    """Costs no processor time, so that only the wall clock ends it."""
    return _met(target, target.hand_in("import time\ntime.sleep(10**6)\n" + _HARMLESS))


@attack(_AREA, "kills every process that it may")
def kills(target: Target) -> str:
    """Also its parent."""
    answer = target.hand_in(
        "import os, signal\nfor pid in (os.getppid(), -1):\n    try:\n        os.kill(pid, signal.SIGKILL)\n"
        "    except OSError:\n        pass\n" + _HARMLESS
    )
    return _met(target, answer)


@attack(_AREA, "leaves a process behind")
def leaves_a_process(target: Target) -> str:
    """Twice forked, in a session of its own, deaf to signals."""
    answer = target.hand_in(
        "import os, signal, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        for number in (1, 2, 15):\n            signal.signal(number, signal.SIG_IGN)\n"
        "        os.execv('/bin/sleep', ['left-behind', '3600'])\n    os._exit(0)\n" + _HARMLESS
    )
    deadline_s = time.monotonic() + 20
    while left := [pid for pid in descendants(target.server.pid) if _is_called(pid, "left-behind")]:
        if time.monotonic() > deadline_s:
            raise Harm(f"processes {left} were left behind")
        time.sleep(0.2)
    return _met(target, answer)


def _is_called(pid: int, name: str) -> bool:
    try:
        return name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@attack(_AREA, "says that it is done, and writes the artifact itself")
def forges_the_artifact(target: Target) -> str:
    """To every open file that takes it; and files where the artifact would be."""
    answer = target.hand_in(
        "import json, os, glob\n"
        'for fd in range(3, 200):\n    try:\n        os.write(fd, b\'{"event": "done"}\\n\')\n    except OSError:\n'
        "        pass\n"
        "for place in glob.glob('/**/artifact', recursive=True):\n    try:\n"
        "        open(os.path.join(place, 'model.json'), 'w').write('{}')\n    except OSError:\n        pass\n"
        "os._exit(0)\n"
    )
    assert answer.status_code >= 400, f"a forged artifact is served: {answer.text[:300]}"
    return _met(target, answer)


@attack(_AREA, "a reason of 100 MB, with escapes")
def long_reason(target: Target) -> str:
    """Terminals obey escapes, and logs are read on terminals."""
    answer = target.hand_in("raise RuntimeError('\\x1b[2J\\x1b]0;owned\\x07\\n' * 10_000_000)\n")
    assert len(answer.content) < 100_000, f"the answer has {len(answer.content):,} bytes"
    for text in (answer.text, target.server.log()):
        if "\x1b" in text or "\\u001b[2J" in text.lower():
            raise Harm("escapes are passed on")
    return _met(target, answer)


@attack(_AREA, "weights that are a pickle")
def pickled_weights(target: Target) -> str:
    """An array of objects in an .npz is one."""

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            import os

            return os.system, (f"touch {target.secrets.untouched.parent / 'new'}",)

    buffer = io.BytesIO()
    np.savez(buffer, w=np.array([pickle.dumps(Trap())], object))
    answer = target.hand_in("def predict(x):\n    return x\n", weights=base64.b64encode(buffer.getvalue()).decode())
    if (target.secrets.untouched.parent / "new").exists():
        raise Harm("it was unpickled")
    return _met(target, answer)


@attack(_AREA, "1 MB of text, nested 100,000 deep")
def nested_source(target: Target) -> str:
    """Parsers that recurse overflow their stack."""
    return _met(target, target.hand_in("x = " + "(" * 100_000 + ")" * 100_000 + _HARMLESS))
