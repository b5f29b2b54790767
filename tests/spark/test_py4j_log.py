"""py4j's log of a JVM that ends under a call, which is no word for the user of a pipeline."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters
from py4j.protocol import ERROR

from pyspark_odradek.pipelines.engine import log_py4j_to


def hang_up(listener: socket.socket, times: int) -> None:
    for _ in range(times):
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)


def test_a_call_that_is_cut_is_reported_to_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = logging.getLogger("py4j")
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    monkeypatch.setattr(own, "handlers", [])
    monkeypatch.setattr(own, "propagate", True)
    log_py4j_to(tmp_path / "spark.log")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hanging_up = threading.Thread(target=hang_up, args=(listener, 2))
        hanging_up.start()
        client = GatewayClient(gateway_parameters=GatewayParameters(port=listener.getsockname()[1]))
        assert client.send_command("c\nnobody\nhears\ne\n") == ERROR
        hanging_up.join(60)
    own.handlers[0].close()
    logging.getLogger().warning("of others")
    assert [record.getMessage() for record in caplog.records] == ["of others"]
    reported = (tmp_path / "spark.log").read_text()
    assert "Exception while sending command." in reported and "Traceback" in reported
