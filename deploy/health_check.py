"""The image's health check: exit 0 if the server in this container is ready, else 1 and its reason."""

from __future__ import annotations

import http.client
import os
import sys


def main() -> int:
    """Ask ``/v2/health/ready`` on loopback, with no regard to any proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("ROWWISE_PORT", "8000")), timeout=3)
    try:
        connection.request("GET", "/v2/health/ready")
        response = connection.getresponse()
        body = response.read(1000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        print(f"no answer: {error}")
        return 1
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        print(f"not ready: {response.status} {body}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
