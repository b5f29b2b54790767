"""A console in a process of its own, as `odradek console` runs it, and how a browser logs in."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from odradek.console.auth import with_user
from tests.support.nodes.node import free_port
from tests.support.nodes.server_process import ServerProcess
from tests.support.waiting import PATIENCE_S

PASSWORDS = {"alice": "correct horse", "bob": "battery staple"}


class ConsoleProcess(ServerProcess):
    """A console; `arguments` say of which clusters."""

    what = "the console"

    def __init__(self, directory: Path, *arguments: object) -> None:
        super().__init__(directory, "console.log", free_port())
        self._arguments = arguments

    def command(self) -> list[str]:
        listen = f"127.0.0.1:{self.port}"
        every = "0.5"
        return [
            *(sys.executable, "-m", "odradek", "console", "--listen", listen, "--every", every),
            *(str(each) for each in self._arguments),
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def browser(url: str, *, user: str = "", address: str = "127.0.0.1") -> Iterator[httpx.Client]:
    """A client of HTTP with its own cookies, from an address of this machine, logged in where a user is named."""
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(base_url=url, transport=transport, timeout=PATIENCE_S, trust_env=False) as client:
        if user:
            answer = client.post("/login", data={"name": user, "password": PASSWORDS[user]})
            assert answer.status_code == 303, answer.text
        yield client


def write_users(directory: Path, *names: str) -> Path:
    """A file of users with the passwords of PASSWORDS."""
    text = ""
    for name in names:
        text = with_user(text, name, PASSWORDS[name])
    path = directory / "users"
    path.write_text(text)
    return path


def write_clusters(path: Path, clusters: Sequence[tuple[str, str, str]]) -> Path:
    """A file of clusters: name, bootstrap, further lines."""
    path.write_text("\n".join(f'[clusters.{name}]\nbootstrap = "{where}"\n{more}' for name, where, more in clusters))
    return path
