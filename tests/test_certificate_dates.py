"""Until when a certificate is valid, as another library reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from server.certificate_dates import not_after_s


@pytest.mark.parametrize("year", [2027, 2049, 2050, 2199])
def test_the_end_is_the_one_that_the_certificate_has(tmp_path: Path, year: int) -> None:
    made = trustme.CA().issue_cert("a.example.org", not_after=datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC))
    path = tmp_path / "server.pem"
    # The key first, and the authority's certificate after the server's.
    path.write_bytes(made.private_key_pem.bytes() + b"".join(blob.bytes() for blob in made.cert_chain_pems))
    known = x509.load_pem_x509_certificate(made.cert_chain_pems[0].bytes()).not_valid_after_utc
    assert not_after_s(path) == known.timestamp()
    assert known.year == year


def test_what_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    path.write_text("no certificate")
    with pytest.raises(ValueError, match="holds no certificate"):
        not_after_s(path)
    pem = trustme.CA().cert_pem.bytes().decode()
    lines = pem.splitlines()
    for damaged in ("\n".join([lines[0], *lines[1:3], lines[-1]]), "\n".join([lines[0], "MAMCAQA=", lines[-1]])):
        path.write_text(damaged)
        with pytest.raises(ValueError, match="damaged"):
            not_after_s(path)
    with pytest.raises(FileNotFoundError):
        not_after_s(tmp_path / "none")
