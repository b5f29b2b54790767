"""The shares of a process's file descriptors for logs, peers and clients."""

from __future__ import annotations

import pytest

from odradek.log.files import MAX_OPEN_FILES
from odradek.server.network.descriptors import Descriptors


@pytest.mark.parametrize("limit", [64, 128, 256, 1024, 20_000, 1 << 20])
def test_logs_and_peers_have_some_and_clients_at_least_half(limit: int) -> None:
    shared = Descriptors(limit)
    assert limit // 2 <= shared.clients_below < limit
    assert 16 <= shared.open_files <= MAX_OPEN_FILES
    assert limit < 256 or limit - shared.clients_below >= shared.open_files + 64


def test_without_a_limit_nothing_is_kept() -> None:
    assert Descriptors().clients_below == 2**31 - 1
    assert Descriptors().open_files == MAX_OPEN_FILES
