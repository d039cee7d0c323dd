"""What instructions the processor has."""

from __future__ import annotations

from rowwise.doctor.finding import Finding, advice, fine, wrong

__all__ = ["instruction_sets", "processor_finding"]

#: The wheels on PyPI for x86-64 are compiled for it; without it they end with an illegal instruction.
_NEEDED = "avx"
#: oneDNN and Eigen choose them when they run.
_WANTED = ("avx2", "fma")


def instruction_sets(cpuinfo: str) -> frozenset[str]:
    """Return the flags that all processors of /proc/cpuinfo have; none where it lists none, as on ARM."""
    flags = [set(line.partition(":")[2].split()) for line in cpuinfo.splitlines() if line.startswith("flags")]
    return frozenset(set.intersection(*flags)) if flags else frozenset()


def processor_finding(machine: str, flags: frozenset[str]) -> Finding:
    """Return whether TensorFlow's wheels run on it, and run well."""
    if machine not in {"x86_64", "amd64"}:
        return fine("processor", machine)
    if _NEEDED not in flags:
        return wrong(
            "processor",
            "the processor, or the virtual machine that shows it, has no AVX",
            why="TensorFlow's wheels are compiled for it and end with an illegal instruction",
            to_do="let the virtual machine have the host's processor type, or take another machine",
        )
    missing = [name for name in _WANTED if name not in flags]
    if missing:
        return advice(
            "processor",
            f"the processor has no {' and no '.join(name.upper() for name in missing)}",
            why="matrix products take about twice as long",
            to_do="let the virtual machine have the host's processor type",
        )
    best = next((name for name in ("amx_tile", "avx512f") if name in flags), "avx2")
    return fine("processor", f"{machine} with {best.upper()}")
