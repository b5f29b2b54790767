"""`odradek console` over real HTTP and web sockets: logins, refusals, and bad input."""

from __future__ import annotations

import json
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from odradek.cli import app
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic
from tests.support.clients.live_page import SOCKET, live_page
from tests.support.nodes.console import PASSWORDS, ConsoleProcess, browser, write_clusters, write_users
from tests.support.nodes.node import Node, silent_port
from tests.support.waiting import eventually

SECRET = "the-password-of-the-client"
# A bound against a hang: after five wrong passwords the answer is to wait.
TRIES = 100


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_users(tmp_path_factory.mktemp("users"), *PASSWORDS)


@pytest.fixture(scope="module")
def console(node: Node, users: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    directory = tmp_path_factory.mktemp("console")
    (directory / "client.properties").write_text(f"client.id={SECRET}\n")
    create_topic(node.bootstrap, "orders", 2, retention_ms=3_600_000)
    odradek(node.bootstrap, "quotas", "set", "producer_byte_rate=1000000", "--client-id", "someone")
    (directory / "password").write_text("scram password\n")
    odradek(node.bootstrap, "users", "add", "carol", "--password-file", directory / "password")
    with silent_port() as port:
        odradek(node.bootstrap, "links", "create", "west", "--source", f"127.0.0.1:{port}")
        odradek(node.bootstrap, "links", "mirror", "west", "flights")
        private = 'see = ["alice"]\nread = ["alice"]\nchange = ["alice"]\nproperties = "client.properties"'
        clusters = write_clusters(
            directory / "console.toml",
            [
                ("open", node.bootstrap, 'read = ["alice"]'),
                ("private", node.bootstrap, private),
                ("down", f"127.0.0.1:{port}", ""),
            ],
        )
        with ConsoleProcess(
            directory, "--config", clusters, "--users", users, "--trusted-proxy", "127.0.0.8"
        ) as process:
            yield process
            assert "Traceback" not in process.log_text(), process.log_text()[:6000]


def page(client: httpx.Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert "Traceback" not in answer.text
    assert SECRET not in answer.text
    return answer.text


def holds(client: httpx.Client, path: str, *texts: str) -> bool:
    """Wait until a page says all of this: the console looks at clusters in its own time."""
    with live_page(client, path) as live:
        assert all(live.says(text) for text in texts)
        assert SECRET not in live.text
    return True


def test_without_a_login_there_is_no_page(console: ConsoleProcess) -> None:
    with browser(console.url) as client:
        for path in ("/", "/c/open", "/c/open/topics?x=1", "/c/none"):
            answer = client.get(path)
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/login?next=%2F")
        assert client.get("/_nicegui/3.18.0/static/nicegui.js").status_code == 403
        assert client.post("/c/open").status_code == 403
        login = client.get("/login?next=%2Fc%2Fopen")
        assert "<form" in login.text
        assert "open" not in re.sub(r'action="[^"]*"', "", login.text)
        assert client.get("/alive").text == "ok\n"


def test_a_wrong_password_gets_a_line(console: ConsoleProcess) -> None:
    with browser(console.url) as client:
        for name, password in (("alice", "wrong"), ("", ""), ("eve<b>", PASSWORDS["alice"])):
            answer = client.post("/login", data={"name": name, "password": password})
            assert answer.status_code == 401
            assert "do not match" in answer.text
            assert "set-cookie" not in answer.headers
        assert client.get("/c/open").status_code == 303


def test_many_wrong_passwords_for_a_name_have_to_wait(console: ConsoleProcess) -> None:
    # Failed logins are counted by name and by address, so this test has its own name and its own address.
    with browser(console.url, address="127.0.0.9") as client:

        def code() -> int:
            return client.post("/login", data={"name": "mallory", "password": "x"}).status_code

        assert code() == 401
        eventually(lambda: code() == 429, "the answer is to wait")


def test_behind_a_proxy_each_browser_is_counted_alone(console: ConsoleProcess) -> None:
    """The console trusts 127.0.0.8 as a proxy; it ignores the headers of other addresses."""

    def code(client: httpx.Client, name: str, address: str) -> int:
        headers = {"X-Forwarded-For": f"192.0.2.1, {address}", "X-Forwarded-Proto": "https"}
        return client.post("/login", data={"name": name, "password": "x"}, headers=headers).status_code

    with browser(console.url, address="127.0.0.8") as proxy, browser(console.url, address="127.0.0.7") as other:
        guesses = (code(proxy, f"guess{number}", "198.51.100.7") for number in range(TRIES))
        assert next((number for number, status in enumerate(guesses) if status == 429), 0) >= 5
        assert code(proxy, "guess", "198.51.100.8") == 401
        assert 429 in (code(other, f"try{number}", f"198.51.101.{number}") for number in range(TRIES))
        form = {"name": "alice", "password": PASSWORDS["alice"]}
        secure = {"X-Forwarded-For": "198.51.100.9", "X-Forwarded-Proto": "https"}
        assert "Secure" in proxy.post("/login", data=form, headers=secure).headers["set-cookie"]


def test_the_cookie_is_for_no_script_and_a_logout_ends_it(console: ConsoleProcess) -> None:
    with browser(console.url) as client:
        answer = client.post("/login?next=//evil.example/", data={"name": "alice", "password": PASSWORDS["alice"]})
        assert answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
        assert client.get("/c/open").status_code == 200
        kept = {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
        assert client.get("/logout").status_code == 303
        assert client.get("/c/open").status_code == 200, "a link ends no session"
        assert client.post("/logout").status_code == 303
        assert client.get("/c/open", headers=kept).status_code == 303


def test_another_site_and_another_name_are_refused(console: ConsoleProcess) -> None:
    form = {"name": "alice", "password": PASSWORDS["alice"]}
    with browser(console.url, user="alice") as client:
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert client.post("/login", data=form, headers=headers).status_code == 403
            assert client.post("/logout", headers=headers).status_code == 403
        rebound = client.get("/c/open", headers={"Host": f"evil.example:{console.port}"})
        assert rebound.status_code == 403
        assert "--hostname evil.example" in rebound.text
        policy = client.get("/c/open").headers
        assert policy["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in policy["content-security-policy"]


def test_web_sockets_need_a_session_and_the_same_origin(console: ConsoleProcess) -> None:
    url = console.url.replace("http", "ws") + SOCKET
    with browser(console.url, user="alice") as client:
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    for headers in ({}, {"Cookie": f"{session_cookie(cookie)}=x"}, {"Cookie": cookie, "Origin": "http://evil.example"}):
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers, proxy=None):
            pass
        assert refused.value.response.status_code == 403
    with connect(url, additional_headers={"Cookie": cookie, "Origin": console.url}, proxy=None) as socket:
        assert str(socket.recv()).startswith("0{")


def test_a_page_without_a_web_socket_polls(console: ConsoleProcess) -> None:
    polling = SOCKET.replace("websocket", "polling")
    with browser(console.url, user="alice") as client:
        opened = client.get(polling)
        assert opened.text.startswith("0{")
        sent = client.post(f"{polling}&sid={json.loads(opened.text[1:])['sid']}", content="41")
        assert (sent.status_code, sent.text.lower()) == (200, "ok")
        client.cookies.clear()
        assert client.get(polling).status_code == 403


def session_cookie(cookie: str) -> str:
    """Its name, which is one console's own."""
    name = cookie.partition("=")[0]
    assert re.fullmatch("odradek-session-[0-9a-f]{12}", name)
    return name


def test_an_open_page_ends_with_its_session(console: ConsoleProcess) -> None:
    with browser(console.url, user="alice") as client, live_page(client, "/c/open") as live:
        assert live.says("1 of 1")
        assert client.post("/logout").status_code == 303
        assert live.says("/login")
        assert live.is_closed()


def test_a_long_record_is_no_message_that_is_too_long(console: ConsoleProcess) -> None:
    with browser(console.url, user="alice") as client, live_page(client, "/c/open") as live:
        assert live.says("1 of 1")
        event = {"client_id": live.client_id, "id": 999_999, "listener_id": "none", "args": ["x" * 3_000_000]}
        live.send("42" + json.dumps(["event", event], separators=(",", ":")))
        live.send("42987654321" + json.dumps(["ack", {"client_id": live.client_id, "next_message_id": 0}]))
        assert live.says("43987654321[")


def test_clusters_are_seen_by_those_who_may(console: ConsoleProcess) -> None:
    with browser(console.url, user="alice") as alice, browser(console.url, user="bob") as bob:
        assert "private" in page(alice, "/")
        assert "private" not in page(bob, "/")
        assert holds(alice, "/c/private", "1 of 1")
        assert "There is no cluster private here." in page(bob, "/c/private")
        assert "read-only" in page(alice, "/c/open")
        assert "read-only" not in page(alice, "/c/private")
        assert "You may not read the records of cluster open." in page(bob, "/c/open/topics/orders/records")
        assert holds(bob, "/c/open/pipelines", "Pipelines cannot be shown")


def test_pages_say_what_the_cluster_is(console: ConsoleProcess) -> None:
    with browser(console.url, user="alice") as client:
        assert holds(
            client, "/c/open", "1 of 1", "certificates of brokers: the console connects to this cluster without TLS"
        )
        assert holds(client, "/c/open/topics", "orders")
        assert holds(client, "/c/open/topics/orders", "retention.ms", "this topic", "No group has committed offsets")
        assert holds(client, "/c/open/brokers", "127.0.0.1:")
        assert holds(client, "/c/open/brokers/settings?broker=1", "node.id", "the file of its broker")
        assert holds(client, "/c/open/brokers/settings?broker=x", "A broker has a number.")
        assert holds(client, "/c/open/quorum", "Node 1 leads")
        assert holds(client, "/c/open/replication", "All replicas are in sync.")
        assert holds(client, "/c/open/groups", "No group.")
        assert holds(client, "/c/open/moves", "Nothing moves.")
        assert holds(client, "/c/open/transactions", "No transactional id is known.", "Look for them")
        assert holds(client, "/c/open/access", "It could not be asked.", "client-id someone", "carol")
        assert holds(client, "/c/open/pipelines", "No pipeline writes its progress to this cluster")
        assert holds(client, "/c/open/links", "Nothing comes: ", "flights", "waiting")


# A text near the end of each page, which has been sent when the page is whole; forms may follow it.
WHEN_SHOWN = {
    "topics": "Internal topics",
    "topics/orders": "retention.ms",
    "brokers/settings": "No setting.",
    "access": "client-id someone",
    "links": "west mirrors from",
}
WHEN_CHANGED = {
    "topics": "New topic",
    "topics/orders": "Delete topic",
    "brokers/settings": "Take away",
    "access": "New quota",
    "links": "Change mirrors",
}
FORMS = (
    *("New topic", "Add partitions", "Delete topic", "Take away"),
    *("New ACL", "New user", "New quota", "Remove", "Change mirrors"),
)


def test_only_who_may_change_a_cluster_has_forms_for_it(console: ConsoleProcess) -> None:
    pages = ("topics", "topics/orders", "brokers/settings", "access", "links")
    with browser(console.url, user="alice") as client:
        found = dict.fromkeys(("open", "private"), "")
        for name in found:
            for path in pages:
                with live_page(client, f"/c/{name}/{path}") as live:
                    assert live.says(WHEN_SHOWN[path])
                    if name == "private":
                        assert live.says(WHEN_CHANGED[path])
                    found[name] += live.text
    assert all(text in found["private"] for text in FORMS)
    assert not any(text in found["open"] for text in FORMS)


def test_bad_input_gets_a_line(console: ConsoleProcess) -> None:
    with browser(console.url, user="alice") as client:
        assert holds(client, "/c/down", "The last look at down failed: cannot connect to 127.0.0.1")
        assert "There is no cluster none here." in page(client, "/c/none/topics")
        assert holds(client, "/c/open/topics/none", "cannot be shown")
        assert holds(client, "/c/open/groups/one?name=none", "cannot be shown")
        assert holds(client, "/c/open/topics/" + "x" * 5000, "cannot be shown")
        assert "<script>alert" not in page(client, "/c/open/groups/one?name=%3Cscript%3Ealert(1)%3C/script%3E")
        assert client.get("/none").status_code == 404
        assert client.get("/login", headers={b"Cookie": b"odradek-session=\xff; x"}).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ((), 2, "say which clusters"),
        (("-b", "127.0.0.1:1", "--config", "x"), 2, "say which clusters"),
        (("-b", "127.0.0.1:1", "--listen", "0.0.0.0:0"), 5, "others than this machine need a login; give --users FILE"),
        (("-b", "127.0.0.1:1", "--listen", "here"), 2, "must be as 127.0.0.1:8080"),
        (("-b", "127.0.0.1:1", "--tls-key", "x"), 5, "--tls-certificate and --tls-key belong together"),
        (("-b", "127.0.0.1:1", "--users", "/none"), 5, "/none: No such file or directory"),
        (("-b", "127.0.0.1:1", "--listen", "127.0.0.1:{taken}"), 5, "another program has this port: end it, or give"),
        (("-b", "127.0.0.1:1", "--trusted-proxy", "x"), 5, "give an address or a network, as 10.0.0.0/8"),
        (
            ("-b", "127.0.0.1:1", "--trusted-proxy", "127.0.0.1"),
            5,
            "--trusted-proxy 127.0.0.1: whom it brings from other",
        ),
        (
            ("-b", "127.0.0.1:1", "--hostname", "kafka.example.org"),
            5,
            "needs a login; give --users FILE or --oidc FILE",
        ),
        (("--config", "/none"), 5, "/none: No such file or directory; name a file that can be read"),
        (("--config", "/none", "--allow-changes"), 2, "leave the options of -b out"),
    ],
)
def test_a_bad_start_gets_a_line(
    arguments: tuple[str, ...], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = tuple(each.replace("{taken}", str(taken.getsockname()[1])) for each in arguments)
        assert app.run(["console", *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert line in said.err
    assert said.err.count("\n") == 1


def test_a_password_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "users"
    command = [sys.executable, "-m", "odradek", "console", "password", str(path), "carol"]
    subprocess.run(command, input="tr0ub4dor&3\n", text=True, check=True, timeout=150, capture_output=True)
    assert path.read_text().startswith("carol:scrypt:16384:8:1:")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ran = subprocess.run(command, input="short\n", text=True, timeout=150, capture_output=True)
    assert (ran.returncode, ran.stderr) == (5, "odradek: a password has at least 8 characters\n")
