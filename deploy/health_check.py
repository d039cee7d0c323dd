"""The image's health check: exit 0 if the server in this container is ready, else 1 and its reason."""

from __future__ import annotations

import http.client
import os
import ssl
import sys


def main() -> int:
    """Ask ``/v2/health/ready`` on loopback, with no regard to any proxy."""
    port = int(os.environ.get("ROWWISE_PORT", "8000"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    if os.environ.get("ROWWISE_TLS_CERTIFICATE"):
        context = ssl.create_default_context()
        # It asks itself, by an address that no certificate names.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=3, context=context)
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
