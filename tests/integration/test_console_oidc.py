"""Logins at an issuer: all steps of a browser, its user on each cluster, and steps that are refused."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from odradek.cli import app
from odradek.console.oidc import IssuerUnreachableError, OidcConfig
from odradek.console.oidc_logins import OidcLogins
from odradek.console.serve import Serving, guarded
from odradek.console.sessions import Grant
from odradek.testing.issuer import TokenIssuer
from tests.support.clients.chromium import MISSING, WIDE, chromium, click, errors, shows
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.console import ConsoleProcess, browser, write_clusters
from tests.support.nodes.node import silent_port
from tests.support.waiting import PATIENCE_S, eventually, eventually_async

CLIENT, SECRET = "console", "a secret: of the client"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issuer(certificates: Certificates) -> Iterator[TokenIssuer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.issue("issuer"))
    issuer = TokenIssuer({CLIENT: SECRET}, context, audience="brokers").start()
    try:
        yield issuer
    finally:
        issuer.stop()


@pytest.fixture(scope="module")
def console(
    issuer: TokenIssuer, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    directory = tmp_path_factory.mktemp("console")
    (directory / "secret").write_text(SECRET)
    with silent_port() as port:
        where = f"127.0.0.1:{port}"
        clusters = write_clusters(
            directory / "console.toml",
            [
                ("ours", where, 'see = ["group:ops"]\nchange = ["alice"]'),
                ("theirs", where, 'see = ["group:dev"]'),
                ("all", where, ""),
            ],
        )
        process = ConsoleProcess(directory, "--config", clusters, "--oidc", directory / "oidc.toml")
        (directory / "oidc.toml").write_text(
            f'issuer = "{issuer.url}"\nclient_id = "{CLIENT}"\nclient_secret_file = "secret"\nurl = "{process.url}"\n'
            f'authorities = "{certificates.ca}"\nuser_claim = "preferred_username"\n'
        )
        with process:
            yield process
            assert "Traceback" not in process.log_text(), process.log_text()[:6000]
            assert SECRET not in process.log_text()


@pytest.fixture
def outside(certificates: Certificates) -> Iterator[httpx.Client]:
    """An HTTP client that plays the browser at the issuer."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with httpx.Client(verify=context, trust_env=False, timeout=150) as client:
        yield client


def begun(client: httpx.Client, path: str = "/c/all") -> str:
    """Begin a login; returns where the issuer is asked."""
    answer = client.get(path)
    assert answer.headers["location"].startswith("/login?next=")
    page = client.get(answer.headers["location"]).text
    assert "Log in at https://127.0.0.1:" in page
    link = page.partition('<a href="')[2].partition('"')[0]
    answer = client.get(link)
    assert answer.status_code == 303
    assert "HttpOnly" in answer.headers["set-cookie"]
    return answer.headers["location"]


def sent_back(outside: httpx.Client, where: str) -> str:
    """Log in at the issuer; returns the path at the console to which it sends the browser."""
    answer = outside.get(where)
    assert answer.status_code == 302, answer.text
    to = urlsplit(answer.headers["location"])
    return f"{to.path}?{to.query}"


def logged_in(console: ConsoleProcess, outside: httpx.Client, client: httpx.Client) -> None:
    answer = client.get(sent_back(outside, begun(client)))
    assert (answer.status_code, answer.headers["location"]) == (303, "/c/all"), answer.text


def test_groups_of_the_issuer_have_rights_by_cluster(
    console: ConsoleProcess, issuer: TokenIssuer, outside: httpx.Client
) -> None:
    issuer.person = {"preferred_username": "alice", "groups": ["ops"]}
    with browser(console.url) as client:
        where = begun(client)
        asked = parse_qs(urlsplit(where).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert len(asked["state"][0]) == len(asked["nonce"][0]) == 64
        assert SECRET not in where
        answer = client.get(sent_back(outside, where))
        assert "HttpOnly" in answer.headers["set-cookie"]
        page = client.get("/").text
        assert "alice" in page
        assert "ours" in page
        assert "theirs" not in page
        assert "read-only" not in client.get("/c/ours").text
        assert "There is no cluster theirs here." in client.get("/c/theirs").text
        assert client.get("/logout").headers["location"] == "/login", "a logout is asked for by a form"
        page = client.post("/logout").text
        assert client.get("/c/all").status_code == 303
        there = page.partition('<form method="post" action="')[2].partition('"')[0]
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
        assert outside.post(there, data=fields).headers["location"] == f"{console.url}/login"
        logout = issuer.logouts[-1]
        assert logout["client_id"] == CLIENT
        assert len(logout["id_token_hint"].split(".")) == 3

    issuer.person = {"preferred_username": "bob", "groups": ["dev"]}
    with browser(console.url) as client:
        logged_in(console, outside, client)
        assert "There is no cluster ours here." in client.get("/c/ours").text
        assert "read-only" in client.get("/c/theirs").text


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_logout_takes_the_token_to_the_issuer_in_no_address(console: ConsoleProcess, issuer: TokenIssuer) -> None:
    issuer.person = {"preferred_username": "alice"}
    with chromium(WIDE, "--ignore-certificate-errors") as driver:
        driver.get(f"{console.url}/c/all")
        click(driver, "//a[contains(., 'Log in at')]")
        issuer.logouts.clear()
        click(driver, "//button[@aria-label='Log out']")
        assert shows(driver, "Log in at")
        assert driver.current_url == f"{console.url}/login"
        # The content policy of the page lets the form through.
        assert errors(driver) == []
    (logout,) = issuer.logouts
    assert logout["method"] == "POST"
    assert len(logout["id_token_hint"].split(".")) == 3


def test_a_token_that_has_ended_is_renewed_or_ends_the_session(
    console: ConsoleProcess, issuer: TokenIssuer, outside: httpx.Client
) -> None:
    # Clocks may differ by a minute: it is taken, and another one is asked for at once.
    ended: dict[str, object] = {"preferred_username": "alice", "iat": 0, "exp": int(time.time()) - 10}
    issuer.refreshes = True
    try:
        with browser(console.url) as client:
            issuer.person = {**ended, "groups": ["ops"]}
            logged_in(console, outside, client)
            issuer.person = {"preferred_username": "alice", "groups": ["dev"]}
            eventually(lambda: "There is no cluster ours here." in client.get("/c/ours").text, "its groups are others")
            assert "read-only" in client.get("/c/theirs").text
        with browser(console.url) as client:
            issuer.person = ended
            logged_in(console, outside, client)
            issuer.refreshes = False
            eventually(lambda: client.get("/c/all").status_code == 303, "the session is over")
            assert "The issuer&#x27;s word on who you are has ended: log in again." in client.get("/login").text
        with browser(console.url) as client:
            issuer.refreshes = True
            logged_in(console, outside, client)
            issuer.person = {"preferred_username": "alice", "sub": "somebody else"}
            eventually(lambda: client.get("/c/all").status_code == 303, "the session is over")
    finally:
        issuer.refreshes = False


def test_a_key_that_the_issuer_changed_is_read_again(
    console: ConsoleProcess, issuer: TokenIssuer, outside: httpx.Client
) -> None:
    issuer.person = {"preferred_username": "alice"}
    for _ in range(2):
        issuer.rotate()
        with browser(console.url) as client:
            logged_in(console, outside, client)


def test_a_login_belongs_to_one_browser_and_ends_once(
    console: ConsoleProcess, issuer: TokenIssuer, outside: httpx.Client
) -> None:
    issuer.person = {"preferred_username": "alice"}
    with browser(console.url) as client, browser(console.url) as other:
        back = sent_back(outside, begun(client))
        answer = other.get(back)
        assert answer.status_code == 401
        assert "was not begun in this browser" in answer.text
        assert client.get(back).status_code == 303, "what was tried elsewhere changes nothing"
        assert "or is finished" in client.get(back).text
        for path in ("/oidc/callback", "/oidc/callback?state=x&code=y", "/oidc/callback?state=%ff;=&code=y"):
            assert "was not begun in this browser" in other.get(path).text
        assert other.get("/c/all").status_code == 303


def test_each_tab_of_a_browser_has_its_own_login(
    console: ConsoleProcess, issuer: TokenIssuer, outside: httpx.Client
) -> None:
    issuer.person = {"preferred_username": "alice"}
    with browser(console.url) as client:
        first, second = (begun(client, path) for path in ("/c/all?tab=1", "/c/all?tab=2"))
        for where, to in ((second, "/c/all?tab=2"), (first, "/c/all?tab=1")):
            answer = client.get(sent_back(outside, where))
            assert (answer.status_code, answer.headers["location"]) == (303, to)
        assert not [name for name in client.cookies if "-login-" in name]
        # A target that is too long for a cookie is left out.
        answer = client.get("/oidc/begin", params={"next": "/" + "x" * 5000})
        assert len(answer.headers["set-cookie"]) < 4000
        assert client.get(sent_back(outside, answer.headers["location"])).headers["location"] == "/"


def test_a_token_that_is_refused_gets_one_line(
    console: ConsoleProcess, issuer: TokenIssuer, outside: httpx.Client
) -> None:
    persons: tuple[tuple[dict[str, object], str], ...] = (
        ({}, "no claim preferred_username"),
        ({"preferred_username": "alice", "nonce": "x"}, "not for the login that was begun here"),
        ({"preferred_username": "alice", "aud": "brokers"}, "for another audience"),
        ({"preferred_username": "alice", "exp": 0}, "has expired"),
    )
    for person, line in persons:
        issuer.person = person
        with browser(console.url, address="127.0.0.3") as client:
            answer = client.get(sent_back(outside, begun(client)))
            assert answer.status_code == 401
            assert line in answer.text
            assert client.get("/c/all").status_code == 303
    with browser(console.url, address="127.0.0.3") as client:
        state = parse_qs(urlsplit(begun(client)).query)["state"][0]
        refused = client.get("/oidc/callback", params={"state": state, "error": "access_denied<b>"})
        assert "the issuer refused: access_denied&lt;b&gt;" in refused.text
        state = parse_qs(urlsplit(begun(client)).query)["state"][0]
        wrong = client.get("/oidc/callback", params={"state": state, "code": "none"})
        assert "the issuer answers with status 401" in wrong.text
        state = parse_qs(urlsplit(begun(client)).query)["state"][0]
        mixed = client.get("/oidc/callback", params={"state": state, "code": "x", "iss": "https://evil.example"})
        assert "from another issuer" in mixed.text
        # Each failure asked the issuer something: these were five.
        assert client.get(sent_back(outside, begun(client))).status_code == 429
    with browser(console.url) as client:
        issuer.person = {"preferred_username": "alice"}
        logged_in(console, outside, client)


async def test_behind_a_proxy_with_tls_cookies_are_for_tls(
    issuer: TokenIssuer, certificates: Certificates, outside: httpx.Client
) -> None:
    """The console decides this by its own address alone: it trusts no proxy here, and no proxy sends headers."""
    issuer.person = {"sub": "alice"}
    config = OidcConfig(
        issuer.url, CLIENT, "https://console.example.org", secret=SECRET, authorities=str(certificates.ca)
    )
    guard = guarded(None, Serving(oidc=config), None, 1)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=config.url) as client:
        answer = await client.get("/oidc/begin")
        assert "Secure" in answer.headers["set-cookie"]
        back = await asyncio.to_thread(sent_back, outside, answer.headers["location"])
        answer = await client.get(back)
        assert answer.status_code == 303, answer.text
        assert all("Secure" in each for each in answer.headers.get_list("set-cookie"))


async def test_login_and_logout_do_not_wait_for_a_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OidcConfig("https://127.0.0.1:1", CLIENT, "https://console.example.org")
    guard = guarded(None, Serving(oidc=config), None, 1)
    asked = asyncio.Event()

    async def renewed(_: Grant) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(guard._oidc, "renewed", renewed)
    assert guard._oidc is not None
    revoked: list[str] = []
    monkeypatch.setattr(guard._oidc._issuer, "revoke", revoked.append)
    token = guard._sessions.begin("alice", grant=Grant("a.b.c", "r", "n", "1", float("-inf")))
    cookies = {guard._cookie: token}
    transport = httpx.ASGITransport(guard)
    async with (
        asyncio.timeout(PATIENCE_S),
        httpx.AsyncClient(transport=transport, base_url=config.url, cookies=cookies) as client,
    ):
        page = asyncio.create_task(client.get("/c/all"))
        await asked.wait()
        assert (await client.get("/login")).status_code == 200
        assert (await client.post("/logout")).status_code == 303
        assert not page.done(), "its word is old"
        await eventually_async(lambda: revoked == ["r"])
        page.cancel()
        await asyncio.gather(page, return_exceptions=True)
    assert guard._renewals is not None
    for task in guard._renewals._running.values():
        task.cancel()


async def test_all_who_begin_wait_for_one_look_at_the_issuer() -> None:
    asked = 0

    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as issuer:
        port = issuer.sockets[0].getsockname()[1]
        logins = OidcLogins(OidcConfig(f"https://127.0.0.1:{port}", "console", "https://c.d"), time.monotonic)
        for times in (1, 2):
            found = await asyncio.gather(*(logins.begin("/") for _ in range(20)), return_exceptions=True)
            assert [type(each) for each in found] == [IssuerUnreachableError] * 20
            assert asked == times


def test_users_log_in_by_a_file_or_at_an_issuer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "users").write_text("")
    (tmp_path / "oidc.toml").write_text('issuer = "https://a.b"\nclient_id = "c"\nurl = "https://c.d"\n')
    both = ("--users", str(tmp_path / "users"), "--oidc", str(tmp_path / "oidc.toml"))
    assert app.run(["console", "-b", "127.0.0.1:1", *both]) == 5
    assert "users log in by one of them; give one" in capsys.readouterr().err
