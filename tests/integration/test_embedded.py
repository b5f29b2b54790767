"""The broker that users start inside their own tests."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from odradek.common.errors import ConfigError
from odradek.testing import EmbeddedBroker
from tests.support.clients.confluent import produce_all, read_all


def test_a_test_of_a_users_own(odradek_broker: EmbeddedBroker) -> None:
    produce_all(odradek_broker.bootstrap_servers, "mine", [(b"k", b"v")])
    assert [message.value() for message in read_all(odradek_broker.bootstrap_servers, "mine")] == [b"v"]


def test_two_at_once_and_nothing_is_left_behind() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        produce_all(one.bootstrap_servers, "here", [(None, b"1")])
        produce_all(other.bootstrap_servers, "here", [(None, b"2")])
        assert [message.value() for message in read_all(one.bootstrap_servers, "here")] == [b"1"]
        directory, (host, port) = one.directory, one.bootstrap_servers.split(":")
    assert not directory.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_a_directory_that_is_named_is_kept(tmp_path: Path) -> None:
    with EmbeddedBroker(directory=tmp_path) as broker:
        produce_all(broker.bootstrap_servers, "kept", [(None, b"v")])
        broker.restart()
        assert [message.value() for message in read_all(broker.bootstrap_servers, "kept")] == [b"v"]
    assert (tmp_path / "kept-0").is_dir()


def test_a_wrong_setting_is_reported_as_everywhere() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        EmbeddedBroker({"num.partitions": "many"}).start()
