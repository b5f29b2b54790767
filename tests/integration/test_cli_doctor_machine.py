"""`odradek doctor` in front of a machine and a network that are so: few open files, a full disk, voters far apart."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from odradek.cli import errors
from tests.support.clients.cli import odradek
from tests.support.disks.file_system import Ballast, skip_unless_root, small_tmpfs
from tests.support.network.sites import network
from tests.support.nodes.cluster import Cluster
from tests.support.waiting import PATIENCE_S

MIB = 1 << 20
FEW_FILES = 5_000


def findings(*arguments: object, files: int | None = None) -> dict[str, dict[str, Any]]:
    """The findings about this machine, by check, of a process that may open so many files."""

    def limit() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    command = [sys.executable, "-m", "odradek", "doctor", "--json", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, preexec_fn=limit)
    assert ran.returncode in (errors.OK, errors.FAILED), ran.stderr
    return {each["check"]: each for each in json.loads(ran.stdout)["findings"]}


def test_a_process_that_may_open_few_files(tmp_path: Path) -> None:
    found = findings("-d", tmp_path, files=FEW_FILES)["file-limit"]
    assert found["severity"] == "bad" and f"{FEW_FILES:,}" in found["seen"]


def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    skip_unless_root()
    with small_tmpfs(tmp_path / "disk", 200 * MIB) as disk:
        assert "disk-space" not in findings("-d", disk)
        Ballast(disk).fill(leave_bytes=8 * MIB)
        assert findings("-d", disk)["disk-space"]["severity"] == "bad"


def test_voters_that_are_far_apart_and_brokers_without_racks(tmp_path: Path) -> None:
    """Two voters are at this site, and the third one beyond a line of 20 ms."""
    with network() as net:
        here, there = net.site("here", 2), net.site("there")
        net.line(here, there, delay_s=0.02)
        hosts = {**here.launchers, **there.launchers}
        with Cluster(tmp_path / "cluster", brokers=3, hosts=hosts) as cluster, here.entered():
            found = odradek(cluster.bootstrap_servers, "doctor", "--json", code=None).json["findings"]
    checks = {each["check"]: each for each in found}
    assert checks["round-trip"]["severity"] == "bad"
    assert [each.partition(" (")[0] for each in checks["round-trip"]["subjects"]] == ["1 and 3", "2 and 3"]
    assert checks["no-racks"]["severity"] == "note"
