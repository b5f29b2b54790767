"""The origin of a request: through trusted proxies, and whatever headers a browser writes itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from odradek.common.errors import ConfigError
from odradek.console.auth import Users
from odradek.console.guard import Guard, cookie_name
from odradek.console.oidc import OidcConfig
from odradek.console.origins import came_from, parse_networks, read_headers
from odradek.console.serve import Serving, check, guarded, warning

PROXIES = parse_networks(["10.0.0.0/8", "::1"])


def scope_of(peer: str, *forwarded: str) -> Any:
    return {"client": (peer, 1), "headers": [(b"X-Forwarded-For", each.encode()) for each in forwarded]}


@pytest.mark.parametrize(
    ("peer", "forwarded", "address", "trusted"),
    [
        ("10.0.0.1", ("198.51.100.7",), "198.51.100.7", True),
        ("10.0.0.1", ("1.2.3.4, 198.51.100.7, 10.0.0.2",), "198.51.100.7", True),
        ("10.0.0.1", ("1.2.3.4, 198.51.100.7", "10.0.0.2"), "198.51.100.7", True),
        ("::ffff:10.0.0.1", ("198.51.100.7",), "198.51.100.7", True),
        ("198.51.100.9", ("1.2.3.4",), "198.51.100.9", False),
        ("10.0.0.1", (), "10.0.0.1", True),
        ("10.0.0.1", ("nonsense, 10.0.0.2",), "10.0.0.2", True),
        ("::1", ("2001:db8:1:2:3:4:5:6",), "2001:db8:1:2::/64", True),
        ("a socket", ("1.2.3.4",), "a socket", False),
    ],
)
def test_proxies_that_are_trusted_name_the_browser(
    peer: str, forwarded: tuple[str, ...], address: str, *, trusted: bool
) -> None:
    scope = scope_of(peer, *forwarded)
    assert came_from(scope, read_headers(scope), PROXIES) == (address, trusted)


def test_a_proxy_that_is_no_address_gets_a_line() -> None:
    with pytest.raises(ConfigError, match=r"--trusted-proxy: .*; give an address or a network"):
        check(Serving(proxies=("proxy.example",)), None)


@pytest.mark.parametrize(
    "serving",
    [
        Serving(proxies=("127.0.0.1",)),
        Serving(hostnames=("localhost", "kafka.example.org")),
        Serving(proxies=("127.0.0.1",), hostnames=("kafka.example.org",)),
    ],
)
def test_without_logins_no_proxy_brings_others(serving: Serving, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="from other machines needs a login; give --users FILE or --oidc FILE"):
        check(serving, None)
    (tmp_path / "users").write_text("")
    check(serving, Users(tmp_path / "users"))
    check(replace(serving, oidc=OidcConfig("https://a.b", "c", "https://c.d")), None)


def test_without_logins_this_machine_has_several_names() -> None:
    check(Serving(hostnames=("LOCALHOST", "127.0.0.2", "::1")), None)


async def cookie_of(guard: Guard, *proto: str) -> str:
    """The cookie of a session which begins with a request through the proxy 10.0.0.1."""
    transport = httpx.ASGITransport(guard, client=("10.0.0.1", 1))
    headers = [("X-Forwarded-Proto", each) for each in proto]
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return (await client.get("/", headers=headers)).headers["set-cookie"]


@pytest.mark.parametrize(
    ("proto", "is_secure"),
    [
        (("https",), True),
        (("https, http",), True),
        (("HTTPS", "http"), True),
        (("http, https",), False),
        (("http",), False),
        ((), False),
    ],
)
async def test_cookies_are_for_tls_where_browsers_have_it(proto: tuple[str, ...], *, is_secure: bool) -> None:
    guard = guarded(None, Serving(proxies=("10.0.0.1",)), None, 1)
    assert ("Secure" in await cookie_of(guard, *proto)) == is_secure
    assert "Secure" not in await cookie_of(guarded(None, Serving(), None, 1), *proto)
    with_tls = Serving(certificate=Path("console.pem"), key=Path("console.key"))
    assert "Secure" in await cookie_of(guarded(None, with_tls, None, 1), *proto)


def test_two_consoles_of_one_host_have_cookies_of_their_own() -> None:
    assert cookie_name("host", "127.0.0.1", 8080) == cookie_name("host", "127.0.0.1", 8080)
    assert cookie_name("host", "127.0.0.1", 8080) != cookie_name("host", "127.0.0.1", 8081)


def test_listening_without_tls_gets_a_warning() -> None:
    assert "--listen 0.0.0.0 without TLS" in warning(Serving("0.0.0.0"))
    assert warning(Serving("127.0.0.1")) == warning(Serving("0.0.0.0", proxies=("10.0.0.1",))) == ""
