"""Both kinds of archive."""

from __future__ import annotations

import pytest

from tests.build.doubles.archives import Pack, pack_tar, pack_zip


@pytest.fixture(params=[pack_tar, pack_zip], ids=["tar.gz", "zip"])
def pack(request: pytest.FixtureRequest) -> Pack:
    packer: Pack = request.param
    return packer
