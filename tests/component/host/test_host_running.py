"""Commands find the host that runs over a disk, and send signals to no other process."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from odradek.common.errors import ConfigError
from odradek.host.running import RUN_FILE, NoHostError, Running, claimed, find_running

PAGES = ("127.0.0.1", 9400)


def test_a_host_is_found_while_it_has_its_disks_alone(tmp_path: Path) -> None:
    with claimed([tmp_path]) as claim:
        with pytest.raises(NoHostError):  # it has not said where its pages are
            find_running(tmp_path)
        claim.publish(PAGES)
        assert find_running(tmp_path) == Running(os.getpid(), PAGES, os.geteuid())
        with pytest.raises(ConfigError, match="another `odradek host` runs there"), claimed([tmp_path]):
            pass
        assert find_running(tmp_path).pid == os.getpid()  # the second has written nothing
    with pytest.raises(NoHostError, match="no host runs"):
        find_running(tmp_path)


def test_the_file_of_a_host_is_for_its_user_alone(tmp_path: Path) -> None:
    (tmp_path / RUN_FILE).touch(0o644)
    with claimed([tmp_path]):
        assert (tmp_path / RUN_FILE).stat().st_mode & 0o777 == 0o600


def test_a_host_starts_while_another_process_looks_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.host.running.LOCK_PATIENCE_S", 60.0)
    with (tmp_path / RUN_FILE).open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        ends = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        ends.start()
        with claimed([tmp_path]) as claim:
            claim.publish(PAGES)
            assert find_running(tmp_path).pages == PAGES
        ends.join()


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_a_pid_that_means_many_processes_is_none_of_a_host(pid: int, tmp_path: Path) -> None:
    with claimed([tmp_path]):
        (tmp_path / RUN_FILE).write_text(json.dumps({"pid": pid, "pages": list(PAGES)}))
        with pytest.raises(NoHostError, match="no pid of a host"):
            find_running(tmp_path)


def test_a_signal_goes_to_the_process_that_its_pages_name() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))
    try:
        mine = Running(os.getpid(), PAGES, os.geteuid())
        with pytest.raises(NoHostError, match="sent no signal"):
            mine.signal(signal.SIGUSR1, {"pid": os.getpid() + 1})
        with pytest.raises(NoHostError, match="sent no signal"):  # a file that another user wrote
            Running(os.getpid(), PAGES, os.geteuid() + 1).signal(signal.SIGUSR1, {"pid": os.getpid()})
        assert not came
        mine.signal(signal.SIGUSR1, {"pid": os.getpid()})
        assert came == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)
