"""What the processes of Ray Serve must find in their environment when they start."""

from __future__ import annotations

__all__ = ["ray_environment"]

_ALWAYS = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "server.replica:doors",
    # Requests are answered on the replica's own event loop: a second one would only pass them on.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    # Workers are given a niceness of 15 else, below everything else on the machine.
    "RAY_worker_niceness": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
}
_HAPROXY = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
    # A prediction that a lost replica had has changed nothing: HAProxy asks another one, and nobody notices.
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",
}


def ray_environment(*, haproxy: bool) -> dict[str, str]:
    """Return the variables. ``haproxy``: HAProxy, which Ray brings, asks replicas directly, and not Ray's own proxy."""
    return {**_ALWAYS, **(_HAPROXY if haproxy else {})}
