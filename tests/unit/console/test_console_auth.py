"""Passwords, sessions and wrong guesses."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from odradek.common.errors import ConfigError
from odradek.console import sessions as sessions_module
from odradek.console.auth import Users, hashed, read_users, rewrite, with_user
from odradek.console.sessions import FAILURES, FAILURES_WITHIN_S, IDLE_S, LASTS_S, Attempts, Sessions


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_password_is_kept_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(with_user(with_user("# who may in\n", "alice", "correct horse"), "bob", "another one"))
    assert "correct" not in path.read_text()
    users = Users(path)
    assert users.check("alice", "correct horse")
    assert not users.check("alice", "another one")
    assert not users.check("carol", "correct horse")
    assert not users.check("alice", "x" * 100_000)
    assert not users.check("alice", "\udcff")
    assert "alice" in users
    assert "salt" not in repr(hashed("correct horse"))


def test_a_file_that_changed_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(with_user("", "alice", "first password"))
    users = Users(path)
    path.write_text(with_user(path.read_text(), "alice", "second password"))
    os.utime(path, (1, 1))
    assert not users.check("alice", "first password")
    assert users.check("alice", "second password")
    path.write_text("")
    os.utime(path, (2, 2))
    assert not users.check("alice", "second password")
    assert "alice" not in users


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "alice:plain",
        "alice:scrypt:16384:8:1:AAAA",
        "alice:scrypt:16383:8:1:AAAA:AAAA",
        "alice:scrypt:1073741824:8:1:AAAA:AAAA",
        "alice:scrypt:16384:8:1:??:AAAA",
        ":scrypt:16384:8:1:AAAA:AAAA",
        "*:scrypt:16384:8:1:AAAA:AAAA",
    ],
)
def test_a_line_that_is_wrong_is_named_by_number(line: str) -> None:
    with pytest.raises(ConfigError, match=r"users: line 2 is not as") as refused:
        read_users("\n" + line, "users")
    assert "AAAA" not in str(refused.value)


@pytest.mark.parametrize(("name", "password"), [("", "long enough"), ("a:b", "long enough"), ("alice", "short")])
def test_names_and_passwords_have_a_form(name: str, password: str) -> None:
    with pytest.raises(ConfigError):
        with_user("", name, password)


def test_a_file_that_cannot_be_read_gets_a_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Users(tmp_path / "gone")


def test_a_session_ends_by_time_and_by_logout() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token = sessions.begin("alice")
    session = sessions.find(token)
    assert session is not None
    assert session.user == "alice"
    assert sessions.find("other") is sessions.find(None) is sessions.find("") is None
    for _ in range(int(LASTS_S / IDLE_S) * 2 - 1):
        clock.now_s += IDLE_S / 2
        assert sessions.find(token) is session
    clock.now_s += IDLE_S / 2
    assert sessions.find(token) is None

    token = sessions.begin("alice")
    clock.now_s += IDLE_S
    assert sessions.find(token) is None

    token = sessions.begin("alice")
    session = sessions.find(token)
    assert session is not None
    sessions.end(token)
    assert not sessions.is_live(session)
    assert sessions.find(token) is None


def test_sessions_that_are_not_used_make_room_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_SESSIONS", 3)
    sessions = Sessions(Clock())
    used = sessions.begin("alice")
    idle = sessions.begin("bob")
    for _ in range(5):
        assert sessions.find(used) is not None
        sessions.begin("")
    assert sessions.find(used) is not None
    assert sessions.find(idle) is None


def test_actions_on_an_open_page_keep_the_session() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token = sessions.begin("alice")
    session = sessions.find(token)
    assert session is not None
    for _ in range(3):
        clock.now_s += IDLE_S * 0.9
        sessions.use(session)
    assert sessions.is_live(session)
    clock.now_s += IDLE_S
    assert not sessions.is_live(session)
    assert session.over.is_set()


def test_a_file_that_is_rewritten_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    path = tmp_path / "users"
    rewrite(path, "first\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    rewrite(link, "second\n")
    assert link.is_symlink()
    assert path.read_text() == "second\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "users"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_a_file_that_is_rewritten_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("first\n")
    os.chown(path, 1, 2)
    rewrite(path, "second\n")
    assert (path.stat().st_uid, path.stat().st_gid) == (1, 2)


def test_wrong_passwords_have_to_wait() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(FAILURES):
        assert not attempts.must_wait("alice", "10.0.0.1")
        attempts.failed("alice", "10.0.0.1")
    assert attempts.must_wait("alice", "10.0.0.2")
    assert attempts.must_wait("bob", "10.0.0.1")
    assert not attempts.must_wait("bob", "10.0.0.2")
    clock.now_s += FAILURES_WITHIN_S
    assert not attempts.must_wait("alice", "10.0.0.1")
