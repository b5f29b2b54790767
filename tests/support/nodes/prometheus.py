"""A real Prometheus that scrapes nodes: Debian's package, where it is installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.nodes.node import free_port
from tests.support.nodes.server_process import ServerProcess
from tools.dashboard_panels import evaluate

INTERVAL_S = 1
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus: apt-get install --no-install-recommends prometheus"
)


class Prometheus(ServerProcess):
    """One server; each target has labels of its own."""

    what: ClassVar[str] = "prometheus"

    def __init__(
        self, directory: Path, targets: Iterable[tuple[str, Mapping[str, str]]], rules: Iterable[Path] = ()
    ) -> None:
        """
        Args:
            targets: (`host:port`, labels).
        """
        super().__init__(directory, "prometheus.log", free_port())
        self._config = self.directory / "prometheus.yml"
        config = {
            "global": {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"},
            "rule_files": [str(each) for each in rules],
            "scrape_configs": [
                {
                    "job_name": "odradek",
                    "static_configs": [{"targets": [at], "labels": dict(labels)} for at, labels in targets],
                }
            ],
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        self._config.write_text(json.dumps(config))  # JSON is YAML

    def command(self) -> list[str]:
        return [
            "prometheus",
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def query(self, text: str) -> list[dict[str, Any]]:
        """The result of a query at this moment."""
        return evaluate(self.url, text)
