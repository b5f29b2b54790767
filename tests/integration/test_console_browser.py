"""Journeys through the console in a real Chromium: log in, find a record, reset a group, on a phone, in the dark.

`make pictures` takes the pictures of docs/console.md on the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By

from pyspark_odradek.pipelines.published import StatusWriter
from tests.support.clients.chromium import MISSING, PHONE, WIDE, chromium, click, errors, field, is_connected, shows
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import commit_alone, create_topic, produce_all
from tests.support.clients.hanging import abort_hanging
from tests.support.clients.links import rows_of
from tests.support.clients.pictures import picture
from tests.support.nodes.console import PASSWORDS, ConsoleProcess, write_clusters, write_users
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

SECRET = "a password for dave"
HOSTILE = b'{"text": "<img src=x onerror=document.title=1>"}'


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("source")) as node:
        create_topic(node.bootstrap, "flights", 2)
        produce_all(node.bootstrap, "flights", [(b"k%d" % at, b"v") for at in range(20)])
        yield node


@pytest.fixture(scope="module")
def console(node: Node, source: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    directory = tmp_path_factory.mktemp("console")
    create_topic(node.bootstrap, "orders", 1)
    odradek(node.bootstrap, "links", "create", "west", "--source", source.bootstrap)
    odradek(node.bootstrap, "links", "mirror", "west", "flights")
    records = [
        (b"customer-%d" % (at % 7), b'{"id": %d, "amount": %d.50, "currency": "EUR"}' % (at, 5 + 3 * at % 17))
        for at in range(40)
    ]
    produce_all(node.bootstrap, "orders", [*records, (b"bytes", b"\xff\xfe"), (b"hostile", HOSTILE)])
    commit_alone(node.bootstrap, "readers", {("orders", 0): 10})
    users = write_users(directory, "alice")
    clusters = write_clusters(directory / "console.toml", [("here", node.bootstrap, 'change = ["alice"]')])
    with ConsoleProcess(directory, "--config", clusters, "--users", users) as process:
        yield process
        assert "Traceback" not in process.log_text(), process.log_text()[:6000]


@pytest.fixture(scope="module")
def driver(console: ConsoleProcess) -> Iterator[Chrome]:
    with chromium(WIDE) as driver:
        driver.get(f"{console.url}/c/here")
        driver.find_element(By.ID, "name").send_keys("alice")
        driver.find_element(By.ID, "password").send_keys(PASSWORDS["alice"], Keys.ENTER)
        assert shows(driver, "What is wrong")
        yield driver
        assert errors(driver) == []


def test_from_the_login_over_the_topic_to_a_record(console: ConsoleProcess, driver: Chrome) -> None:
    driver.get(f"{console.url}/c/here")
    assert shows(driver, "the quorum has 1 voter")
    picture(driver, "console-overview")
    click(driver, "//a[contains(., 'Topics')]")
    field(driver, "Search").send_keys("ord")
    click(driver, "//td/a[text()='orders']")
    assert shows(driver, "Settings, those of the topic itself first")
    click(driver, "//a[text()='Records']")
    assert shows(driver, "42 shown of 42 records")
    picture(driver, "console-records")
    # The page shows the content of a record as text, not as HTML.
    click(driver, "//td[contains(text(), '<img')]")
    assert shows(driver, "orders-0, offset 41")
    assert shows(driver, '"text": "<img src=x onerror=document.title=1>"')
    assert driver.title == "Records of orders - here - Odradek"
    click(driver, "//button[@aria-label='Close']")
    field(driver, "Key contains").send_keys("bytes", Keys.ENTER)
    assert shows(driver, "1 shown of 42 records")
    click(driver, "//td[text()='bytes']")
    assert shows(driver, "00000000  ff fe")


def test_records_come_to_a_page_that_is_live(console: ConsoleProcess, driver: Chrome, node: Node) -> None:
    create_topic(node.bootstrap, "live", 1)
    driver.get(f"{console.url}/c/here/topics/live/records")
    assert shows(driver, "0 shown of 0 records")
    click(driver, "//*[contains(@class, 'q-toggle')][contains(., 'Live')]")
    assert shows(driver, "Live: records that come from now on are shown on top.")
    produce_all(node.bootstrap, "live", [(b"later", b"it came")])
    assert shows(driver, "it came")


def test_a_record_is_written(console: ConsoleProcess, driver: Chrome, node: Node) -> None:
    create_topic(node.bootstrap, "written", 1)
    driver.get(f"{console.url}/c/here/topics/written/records")
    assert shows(driver, "0 shown of 0 records")
    click(driver, "//button[contains(., 'Write')]")
    field(driver, "Key").send_keys("a key")
    click(driver, "//button[contains(., 'Write it')]")
    assert shows(driver, "Written to partition 0, offset 0.")
    click(driver, "//button[contains(., 'Read')]")
    assert shows(driver, "a key")


def test_a_group_is_reset_after_a_preview(console: ConsoleProcess, driver: Chrome, node: Node) -> None:
    driver.get(f"{console.url}/c/here/groups")
    click(driver, "//td/a[text()='readers']")
    assert shows(driver, "Reset offsets")
    click(driver, "//button[contains(., 'Preview')]")
    assert shows(driver, "orders-0: 10 → 42 (32 records are skipped)")
    picture(driver, "console-preview")
    click(driver, "//button[contains(., 'Cancel')]")
    assert committed(node) == 10
    click(driver, "//button[contains(., 'Preview')]")
    click(driver, "//button[contains(., 'Do it')]")
    eventually(lambda: committed(node) == 42, "the group is reset")


@pytest.mark.slow  # a group and a mirror are changed the same way; test_console_changes has every change
def test_topics_and_users_are_made_and_deleted_after_a_question(console: ConsoleProcess, driver: Chrome) -> None:
    driver.get(f"{console.url}/c/here/topics")
    is_connected(driver)
    field(driver, "Name of the topic").send_keys("made-here")
    field(driver, "Partitions").send_keys("3")
    click(driver, "//button[contains(., 'Preview')]")
    assert shows(driver, "Topic made-here is made, with 3 partitions and 1 replica of each.")
    click(driver, "//button[contains(., 'Do it')]")
    assert shows(driver, "Change the topic")
    field(driver, "Setting").send_keys("retention.ms", Keys.TAB)
    field(driver, "Value").send_keys("1000")
    click(driver, "//button[contains(., 'Set')]")
    assert shows(driver, "It becomes 1000.")
    click(driver, "//button[contains(., 'Do it')]")
    assert shows(driver, "retention.ms 1000 this topic")
    click(driver, "//button[contains(., 'Delete topic')]")
    field(driver, "Type made-here to go on").send_keys("made-here")
    click(driver, "//button[contains(., 'Do it')]")
    eventually(lambda: driver.current_url.endswith("/topics"), "the topic is deleted")

    driver.get(f"{console.url}/c/here/access")
    is_connected(driver)
    assert shows(driver, "New quota")
    field(driver, "User").send_keys("dave")
    field(driver, "Password").send_keys(SECRET)
    click(driver, "//input[@aria-label='Password']/..//button")
    assert shows(driver, "User dave is new, and may log in by SCRAM-SHA-256, SCRAM-SHA-512.")
    assert field(driver, "Password").get_attribute("value") == ""
    click(driver, "//button[contains(., 'Do it')]")
    assert shows(driver, "dave SCRAM-SHA-256, SCRAM-SHA-512")
    assert SECRET not in driver.page_source
    click(driver, "//tr[contains(., 'dave')]//button[contains(., 'Remove')]")
    assert shows(driver, "User dave may log in no more")
    click(driver, "//button[contains(., 'Do it')]")
    assert shows(driver, "No user.")


def committed(node: Node) -> int:
    (group,) = odradek(node.bootstrap, "groups", "describe", "--group", "readers", "--rate-over", 0, "--json").json
    return int(group["offsets"][0]["current_offset"])


def test_a_mirror_is_paused_after_a_question(console: ConsoleProcess, driver: Chrome, node: Node) -> None:
    driver.get(f"{console.url}/c/here/links")
    eventually(lambda: [row["lag"] for row in rows_of(node.bootstrap, "flights")] == [0, 0], "nothing lags")
    assert shows(driver, "west mirrors from")
    assert shows(driver, "active")
    picture(driver, "console-links")
    field(driver, "Topics").send_keys("flights")
    click(driver, "//button[contains(., 'Preview')]")
    assert shows(driver, "flights is fetched no more.")
    click(driver, "//button[contains(., 'Do it')]")
    assert shows(driver, "paused")
    assert [row["state"] for row in rows_of(node.bootstrap, "flights")] == ["paused", "paused"]


@pytest.mark.slow  # test_cli_transactions aborts one without a browser
def test_a_hanging_transaction_is_aborted_after_a_question(console: ConsoleProcess, driver: Chrome, node: Node) -> None:
    brokers = ("configs", "alter", "--entity-type", "brokers", "--entity-default")
    verification = "transaction.partition.verification.enable"
    odradek(node.bootstrap, *brokers, "--add-config", f"{verification}=false")
    try:
        abort_hanging(driver, f"{console.url}/c/here", node, "hung")
    finally:
        odradek(node.bootstrap, *brokers, "--delete-config", verification)


def test_pipelines_say_how_far_they_are(console: ConsoleProcess, driver: Chrome, node: Node) -> None:
    flows: list[dict[str, object]] = [
        {"flow": "visits", "target": "visits", "status": "running", "rows_read": 18_204, "lag": 12, "rate": 812.4},
        {"flow": "tell_of_long_visits", "target": "long_visits", "status": "running", "rows_read": 417, "lag": None},
        {"flow": "pages", "target": "pages", "status": "done", "rows_read": None},
    ]
    kept = {"batches": 9, "batch_ms": 121, "state_rows": 5, "state_bytes": 4096}
    status = {"pipeline": "shop", "mode": "continuous", "state": "running", "started": 1.0, "error": ""}
    said: list[str] = []
    with StatusWriter(node.bootstrap, {}, said.append, every_s=0.1) as published:
        published.put({**status, "updated": time.time(), "flows": [{**kept, **flow} for flow in flows]})
        driver.get(f"{console.url}/c/here/pipelines")
        assert shows(driver, "shop: running (continuous)")
        assert shows(driver, "18,204")
        picture(driver, "console-pipelines")
        published.put(
            {**status, "state": "failed", "error": "visits: <b>it failed", "updated": time.time(), "flows": []}
        )
        assert shows(driver, "shop: failed (continuous)")
        assert shows(driver, "visits: <b>it failed")
    assert said == []


def test_keys_lead_to_pages_and_to_the_search(console: ConsoleProcess, driver: Chrome) -> None:
    driver.get(f"{console.url}/c/here")
    assert shows(driver, "Nothing changed since the console looks.")
    body = driver.find_element(By.TAG_NAME, "body")
    is_connected(driver)
    body.send_keys("g", "c")
    assert shows(driver, "readers")
    is_connected(driver)
    driver.find_element(By.TAG_NAME, "body").send_keys("/")
    eventually(lambda: driver.switch_to.active_element.get_attribute("aria-label") == "Search", "the search is focused")


def test_on_a_phone_and_in_the_dark(console: ConsoleProcess, driver: Chrome) -> None:
    driver.set_window_size(*PHONE)
    try:
        driver.get(f"{console.url}/c/here/topics")
        assert shows(driver, "orders")
        assert not driver.find_element(By.XPATH, "//a[contains(., 'Leaders and replicas')]").is_displayed()
        assert overflow(driver) <= 0, "nothing is wider than the phone"
        picture(driver, "console-phone")
        click(driver, "//button[@aria-label='Pages']")
        click(driver, "//a[contains(., 'Leaders and replicas')]")
        assert shows(driver, "All replicas are in sync.")
        click(driver, "//button[@aria-label='Dark or light']")
        eventually(lambda: is_dark(driver), "it is dark")
        driver.get(f"{console.url}/c/here/brokers")
        eventually(lambda: is_dark(driver), "it stays dark")
        assert shows(driver, "serves")
        picture(driver, "console-phone-dark")
        click(driver, "//button[@aria-label='Dark or light']")
        eventually(lambda: not is_dark(driver), "it is light")
    finally:
        driver.set_window_size(*WIDE)


# A text of each page that is there once the page is whole.
ON_A_PHONE = {
    "": "What is wrong",
    "topics/orders": "Change the topic",
    "topics/orders/records": "shown of 42 records",
    "groups": "readers",
    "groups/one?name=readers": "Reset offsets",
    "brokers": "serves",
    "brokers/settings?broker=1": "node.id",
    "quorum": "leads, epoch",
    "moves": "Move a partition",
    "transactions": "Hanging transactions",
    "access": "New quota",
    "links": "west mirrors from",
    "pipelines": "Rows read",
}


@pytest.mark.slow  # test_on_a_phone_and_in_the_dark measures one page
def test_no_page_is_wider_than_a_phone(console: ConsoleProcess, driver: Chrome) -> None:
    driver.set_window_size(*PHONE)
    too_wide: dict[str, int] = {}
    try:
        for path, text in ON_A_PHONE.items():
            driver.get(f"{console.url}/c/here/{path}".rstrip("/"))
            assert shows(driver, text)
            if (pixels := overflow(driver)) > 0:
                too_wide[path] = pixels
    finally:
        driver.set_window_size(*WIDE)
    assert not too_wide


def overflow(driver: Chrome) -> int:
    """By how many pixels the page is wider than the window; 0 or less where it fits."""
    return int(driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth"))


def is_dark(driver: Chrome) -> bool:
    return "body--dark" in (driver.find_element(By.TAG_NAME, "body").get_attribute("class") or "")
