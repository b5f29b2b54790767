"""Personal data stays in Europe: America gets two topics of four, one of them filtered, and keeps them for less time.

python -m examples.personal --orders 10000
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message, Producer

from examples.personal.share import ORDERS, SHARED
from examples.road import HOST, Outpost
from examples.sites import Reading, Running, await_true, command, described, parser_of, print_report
from examples.topics import TIMEOUT_S, create_topic, refuse_failure
from odradek.testing.processes import ProcessCluster

CUSTOMERS, ARTICLES = "customers", "articles"
LISTED = (ARTICLES, SHARED)
LINK, LOGIN = "europe", "america"
PARTITIONS = 2
CUSTOMER_COUNT, ARTICLE_COUNT = 100, 50
ORDERS_PER_S = 500
# In three orders, one of a customer who agreed, one of a customer who did not, and one that says nothing.
ANSWERS: tuple[dict[str, bool], ...] = ({"agreed": True}, {"agreed": False}, {})
# How personal data look in bytes, wherever they are; and an order, whether it may be shared or not.
PERSONAL = re.compile(rb"[a-z0-9-]+@mail\.example|Generated Person \d+")
ORDER = re.compile(rb"order-\d{7}")
# America's own, once all has been counted.
RETENTION_MS = 1000


@dataclass
class Report:
    """The records of each region.

    Attributes:
        agreed: ids of the orders that may be shared.
        kept: ids of the other orders.
        read: how often each order was read in America.
        articles: how many articles were read there.
        abroad: ids of orders and personal data in the files of America, and in the bytes that Europe sent there.
        refused: topics outside the list that America asked for, and got nothing of.
        left: what is in the files of America when its own retention has passed.
        at_home: what the same search finds in Europe at the end. It must find all, or it proves nothing.
    """

    agreed: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    read: Counter[str] = field(default_factory=Counter)
    articles: int = 0
    abroad: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    at_home: set[str] = field(default_factory=set)

    @property
    def personal(self) -> set[str]:
        """Names and addresses that the search finds in Europe."""
        return self.at_home - self.agreed - self.kept

    @property
    def holds(self) -> bool:
        """Whether America got all that is listed, each order once, and no byte of the rest, and has deleted it."""
        is_complete = self.read == dict.fromkeys(self.agreed, 1) and self.articles == ARTICLE_COUNT
        finds_all = self.at_home >= self.agreed | self.kept and len(self.personal) == 2 * CUSTOMER_COUNT
        return (
            is_complete and finds_all and self.abroad == self.agreed and self.refused == [CUSTOMERS] and not self.left
        )

    def __str__(self) -> str:
        again = self.read.total() - len(self.read)
        return "\n".join(
            [
                f"Europe has {len(self.agreed | self.kept):,} orders, of which {len(self.agreed):,} may be shared, and "
                f"{len(self.personal)} names and addresses",
                f"America read {len(self.read):,} orders, {again} of them again, and {self.articles} articles; in its "
                f"files, and in all bytes that came over, are {len(self.abroad - self.agreed)} things outside the list",
                f"refused: {', '.join(self.refused) or 'nothing'}; left in America after its retention: "
                f"{len(self.left)}",
            ]
        )


def run(folder: Path, orders: int) -> Report:
    """Start both regions, make orders, and kill what shares them and the node of America meanwhile."""
    report = Report()
    folder.mkdir(parents=True, exist_ok=True)
    crossed, password = folder / "crossed", secrets.token_hex(16)
    crossed.mkdir()
    internal = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with ExitStack() as stack:
        guarded = {**internal, **guards(password)}
        europe = stack.enter_context(Outpost(folder / "europe", guarded, "SASL_PLAINTEXT", crossed))
        america = stack.enter_context(
            ProcessCluster(folder / "america", brokers=1, settings={**internal, **abroad(folder)})
        )
        home = europe.cluster.bootstrap_servers
        for topic in (CUSTOMERS, ARTICLES, ORDERS, SHARED):
            create_topic(home, topic, PARTITIONS)
        link(europe, america, folder / "link.properties", password)
        partitions = [(topic, number) for topic in LISTED for number in range(PARTITIONS)]
        stack.callback(Reading(america.bootstrap_servers, partitions, lambda message: take(message, report)).stop)
        sharing = stack.enter_context(Running("examples.personal.share", home))
        making = threading.Thread(target=make, args=(home, orders, report))
        making.start()
        await_true(lambda: len(report.read) > orders / 12, "America has some orders")
        print(f"kill -9 of what shares {ORDERS}, and of America", flush=True)
        sharing.kill()
        america.kill()
        america.start()
        making.join()
        await_true(
            lambda: len(report.read) == len(report.agreed) and report.articles == ARTICLE_COUNT,
            "America has all that it may have",
        )
        ask_for_more(america, report)
        report.abroad = found_in([*files_of(america), *crossed.iterdir()])
        forget(america)
        await_true(lambda: not found_in(files_of(america)), "America has deleted all")
        report.left = found_in(files_of(america))
        report.at_home = found_in(files_of(europe.cluster))
    return report


def guards(password: str) -> dict[str, object]:
    """Settings of Europe: America logs in at SITES and may do what ACLs say. In the region itself all is allowed."""
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sites.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{LOGIN}="{password}";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def abroad(folder: Path) -> dict[str, object]:
    """Settings of America: a key that seals its password for Europe, and segments that are deleted when they expire."""
    keys = folder / "keys"
    keys.write_text(base64.b64encode(os.urandom(32)).decode())
    return {
        "odradek.secret.key.file": keys,
        "log.retention.check.interval.ms": 200,
        "log.segment.delete.delay.ms": 0,
    }


def link(europe: Outpost, america: ProcessCluster, settings: Path, password: str) -> None:
    """The list is written down twice: America asks for these topics, and Europe gives no others."""
    for topic in LISTED:
        command(
            europe.cluster, "acls", "add", "--allow-principal", f"User:{LOGIN}", "--operation", "READ", "--topic", topic
        )
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{LOGIN}" password="{password}";'
    settings.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
    source = f"{HOST}:{europe.road.port}"
    command(america, "links", "create", LINK, "--source", source, "--settings", str(settings))
    command(america, "links", "mirror", LINK, *LISTED)


def make(bootstrap: str, orders: int, report: Report) -> None:
    """Write customers, articles and orders in Europe, ORDERS_PER_S, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})

    def write(topic: str, key: str, value: dict[str, object]) -> None:
        producer.produce(topic, json.dumps(value), key, on_delivery=refuse_failure)
        producer.poll(0)

    people = [
        {"name": f"Generated Person {number}", "mail": f"person-{number}@mail.example"}
        for number in range(CUSTOMER_COUNT)
    ]
    for person in people:
        write(CUSTOMERS, person["mail"], {**person})
    for number in range(ARTICLE_COUNT):
        write(ARTICLES, f"article-{number}", {"title": f"Generated Article {number}"})
    began_s = time.monotonic()
    for number in range(orders):
        time.sleep(max(began_s + number / ORDERS_PER_S - time.monotonic(), 0))
        person, answer = people[number % CUSTOMER_COUNT], ANSWERS[number % len(ANSWERS)]
        order = {"id": f"order-{number:07}", "article": f"article-{number % ARTICLE_COUNT}", "cents": number % 1000}
        (report.agreed if answer.get("agreed") else report.kept).add(str(order["id"]))
        write(ORDERS, person["mail"], {**order, **person, **answer})
    if producer.flush(TIMEOUT_S):
        raise TimeoutError(f"orders are not acknowledged after {TIMEOUT_S:g} s")


def take(message: Message, report: Report) -> None:
    """A record that was read in America."""
    if message.topic() == SHARED:
        report.read[json.loads(message.value() or b"{}")["id"]] += 1
    else:
        report.articles += 1


def ask_for_more(america: ProcessCluster, report: Report) -> None:
    """Have America add to its list what Europe does not give."""
    command(america, "links", "mirror", LINK, CUSTOMERS)

    def refused() -> list[str]:
        rows = described(america, LINK)["partitions"]
        return [row["topic"] for row in rows if "AUTHORIZATION_FAILED" in row["reason"]]

    await_true(lambda: bool(refused()), f"{CUSTOMERS} is refused")
    report.refused = refused()


def forget(america: ProcessCluster) -> None:
    """Give America a retention of its own, which Europe does not have."""
    for topic in LISTED:
        command(america, "configs", "alter", "--topic", topic, "--add-config", f"retention.ms={RETENTION_MS}")


def files_of(site: ProcessCluster) -> list[Path]:
    """All files of a site."""
    return [path for path in site.plans[0].directory.rglob("*") if path.is_file()]


def found_in(paths: Iterable[Path]) -> set[str]:
    """Ids of orders and personal data in files, in the bytes as they are."""
    found: set[bytes] = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # a node deletes and renames its own
            data = path.read_bytes()
            found.update(PERSONAL.findall(data), ORDER.findall(data))
    return {each.decode() for each in found}


def main() -> int:
    parser = parser_of("personal", __doc__)
    parser.add_argument("--orders", type=int, default=10_000, help="made in Europe, 500 a second")
    given = parser.parse_args()
    return print_report(given.folder, lambda folder: run(folder, given.orders))


if __name__ == "__main__":
    sys.exit(main())
