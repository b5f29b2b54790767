"""The console as a process: its thread for clusters, its pages behind the guard, and the server of both."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from odradek.common.errors import ConfigError
from odradek.console.auth import Users
from odradek.console.clusters import ClusterConfig
from odradek.console.garbage import Collector, without_full_collections
from odradek.console.guard import Guard, cookie_name
from odradek.console.kafka_thread import KafkaThread
from odradek.console.oidc import OidcConfig
from odradek.console.oidc_logins import OidcLogins
from odradek.console.origins import host_name, parse_networks
from odradek.console.sessions import Attempts, Sessions
from odradek.console.watch import Watch

NEEDED = "the console needs packages of its own: pip install 'odradek[console]'"
STOP_WITHIN_S = 3
# A browser that was away for less, as a phone is, has its page as it was; a ping may take 0.4 of it.
RECONNECT_WITHIN_S = 60.0
# A record that is written has a million signs, each of which may take six bytes on its way (Engine.IO takes 1 MB).
MAX_MESSAGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Serving:
    """The settings of the server.

    Attributes:
        hostnames: of the console for browsers, besides its address.
        certificate, key: PEM files; both or none.
        every_s: the interval of snapshots of a cluster.
        proxies: addresses and networks of trusted proxies.
        oidc: the issuer for logins, instead of a file of users.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    hostnames: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None
    every_s: float = 5.0
    proxies: Sequence[str] = ()
    oidc: OidcConfig | None = None


def check(serving: Serving, users: Users | None) -> None:
    """Raises ConfigError for settings that would give access to unintended users."""
    if (serving.certificate is None) != (serving.key is None):
        raise ConfigError(["--tls-certificate and --tls-key belong together; give both"])
    parse_networks(serving.proxies)
    if users is not None and serving.oidc is not None:
        raise ConfigError(["--users and --oidc: users log in by one of them; give one"])
    if users is None and serving.oidc is None and not is_loopback(serving.host):
        raise ConfigError(
            [f"--listen {serving.host}: others than this machine need a login; give --users FILE or --oidc FILE"]
        )
    elsewhere = [f"--trusted-proxy {each}" for each in serving.proxies]
    elsewhere += [f"--hostname {each}" for each in serving.hostnames if not is_loopback(each.lower())]
    if users is None and serving.oidc is None and elsewhere:
        raise ConfigError(
            [f"{elsewhere[0]}: whom it brings from other machines needs a login; give --users FILE or --oidc FILE"]
        )


def warning(serving: Serving) -> str:
    """A warning about the security of the address, or ""."""
    if serving.certificate is not None or is_loopback(serving.host) or serving.proxies:
        return ""
    return (
        f"--listen {serving.host} without TLS: passwords and records cross the network as they are; "
        "give --tls-certificate and --tls-key, or --trusted-proxy of one that ends TLS"
    )


def is_loopback(host: str) -> bool:
    """Whether an address is a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    clusters: Mapping[str, ClusterConfig], serving: Serving, users: Users | None, say: Callable[[str], None]
) -> None:
    """Serve until interrupted.

    Raises:
        ConfigError: as `check`, and where the packages of the console are missing, or it cannot listen there.
    """
    check(serving, users)
    if any(find_spec(name) is None for name in ("fastapi", "nicegui", "uvicorn")):
        raise ConfigError([NEEDED])
    sock = _bound(serving)
    with sock, without_full_collections(), KafkaThread() as kafka:
        kafka.start(Collector(_has_open_pages).run()).add_done_callback(_report)
        import uvicorn

        watches = {name: Watch(config, every_s=serving.every_s) for name, config in clusters.items()}
        for watch in watches.values():
            kafka.start(watch.run()).add_done_callback(_report)
        app = _application(kafka, watches, serving, users, sock.getsockname()[1])
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="websockets-sansio",
            timeout_graceful_shutdown=STOP_WITHIN_S,
            ssl_certfile=serving.certificate,
            ssl_keyfile=serving.key,
        )
        scheme = "https" if serving.certificate else "http"
        shown = f"[{serving.host}]" if ":" in serving.host else serving.host
        say(f"Console of {', '.join(clusters)} at {scheme}://{shown}:{sock.getsockname()[1]}; end it with Ctrl-C.")
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(uvicorn.Server(config).serve(sockets=[sock]))


def _has_open_pages() -> bool:
    from nicegui import Client

    # Another thread opens and closes them.
    return any(client.has_socket_connection for client in list(Client.instances.values()))


def _bound(serving: Serving) -> socket.socket:
    family = socket.AF_INET6 if ":" in serving.host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((serving.host, serving.port))
        sock.listen()
    except OSError as error:
        sock.close()
        where = f"--listen {serving.host}:{serving.port}"
        hint = _LISTEN_HINTS.get(error.errno or 0, "give an address of this machine and a free port")
        raise ConfigError([f"{where}: {error.strerror or error}; {hint}"]) from None
    return sock


_LISTEN_HINTS = {
    errno.EADDRINUSE: "another program has this port: end it, or give another port, or 0 for a free one",
    errno.EACCES: "ports below 1024 are for root: give another port, as 8080",
    errno.EADDRNOTAVAIL: "this machine has no such address: give one of its own, or 0.0.0.0 for all",
}


def _report(ended: Future[None]) -> None:
    """Report the error of a watch, which never ends by itself: it is a bug."""
    if not ended.cancelled() and (error := ended.exception()) is not None:
        sys.excepthook(type(error), error, error.__traceback__)


def _application(
    kafka: KafkaThread, watches: dict[str, Watch], serving: Serving, users: Users | None, port: int
) -> Any:
    from fastapi import FastAPI
    from nicegui import core, ui

    from odradek.console.pages import (
        access,
        brokers,
        groups,
        links,
        moves,
        overview,
        pipelines,
        records,
        settings,
        topics,
        transactions,
    )
    from odradek.console.pages.frame import Console

    console = Console(kafka, watches, users is not None or serving.oidc is not None)
    pages = (overview, brokers, settings, topics, records, groups, moves, transactions, access, links, pipelines)
    for page in pages:
        page.register(console)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    ui.run_with(app, title="Odradek", show_welcome_message=False, reconnect_timeout=RECONNECT_WITHIN_S)
    core.sio.eio.max_http_buffer_size = MAX_MESSAGE_BYTES
    console.guard = guarded(app, serving, users, port)
    return console.guard


def guarded(inner: Any, serving: Serving, users: Users | None, port: int) -> Guard:
    """An ASGI application behind the guard of a console that listens at a port."""
    named = [*serving.hostnames, *([host_name(urlsplit(serving.oidc.url).netloc)] if serving.oidc else [])]
    hosts = [serving.host, *named] if serving.host not in ("0.0.0.0", "::") else named  # noqa: S104  # compared
    is_https = serving.oidc is not None and urlsplit(serving.oidc.url).scheme == "https"
    return Guard(
        inner,
        Sessions(time.monotonic),
        Attempts(time.monotonic),
        users=users,
        hosts=[host.lower() for host in hosts],
        secure=serving.certificate is not None or is_https,
        cookie=cookie_name(socket.gethostname(), serving.host, port),
        proxies=parse_networks(serving.proxies),
        oidc=OidcLogins(serving.oidc, time.monotonic) if serving.oidc is not None else None,
    )
