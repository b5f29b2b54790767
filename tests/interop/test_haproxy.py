"""HAProxy with the configuration of docs/tls.md: one port, three names, and TLS from the client to the broker."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.disks.file_system import skip_unless_root
from tests.support.nodes.cluster import topic_at
from tests.support.nodes.node import free_port
from tests.support.nodes.server_process import ServerProcess
from tests.support.nodes.two_sided import TwoSided

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tls.md").read_text()
NAMES = {number: f"kafka-{number}.example.com" for number in (1, 2, 3)}
COUNT = 30
# The program of a client: it writes to each partition, and reads all, by names that lead to the proxy.
CLIENT = """
import json, sys
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.clients.confluent import produce_all, read_all
settings, count = json.loads(sys.argv[1]), int(sys.argv[2])
admin = AdminClient(settings)
admin.create_topics([NewTopic("t", 3, 3)])["t"].result(60)
address = settings.pop("bootstrap.servers")
given = {key.replace(".", "_"): text for key, text in settings.items()}
produce_all(address, "t", [(b"%d" % each, b"%d" % each) for each in range(count)], acks="all", **given)
found = sorted(int(each.value()) for each in read_all(address, "t", 3, **given))
assert found == list(range(count)), found
print(sorted((each.host, each.port) for each in admin.list_topics(timeout=60).brokers.values()))
"""


class HAProxy(ServerProcess):
    """The proxy in the foreground."""

    what = "HAProxy"

    def __init__(self, directory: Path, targets: dict[int, int]) -> None:
        super().__init__(directory, "haproxy.log", free_port())
        directory.mkdir(parents=True)
        block = re.search(r"```haproxy\n# haproxy.cfg\n(.*?)```", PAGE, re.DOTALL)
        assert block is not None
        text = re.sub(r"10\.0\.0\.(\d):9093", lambda found: f"127.0.0.1:{targets[int(found[1])]}", block[1])
        self.config = directory / "haproxy.cfg"
        self.config.write_text(text.replace("bind :9093", f"bind 127.0.0.1:{self.port}"))

    def command(self) -> list[str]:
        return ["haproxy", "-db", "-f", str(self.config)]


@dataclass
class Place:
    cluster: TwoSided
    proxy: HAProxy


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if shutil.which("haproxy") is None:
        pytest.skip("needs HAProxy: apt-get install haproxy")
    directory = tmp_path_factory.mktemp("haproxy")
    cluster = TwoSided(directory)
    proxy = HAProxy(directory / "haproxy", cluster.ports)
    external = {(number, "EXTERNAL"): (name, proxy.port) for number, name in NAMES.items()}
    cluster.advertise(
        external | {(node.node_id, "INTERNAL"): ("127.0.0.1", node.plan.port) for node in cluster.brokers}
    )
    with cluster, proxy:
        yield Place(cluster, proxy)


def test_a_stock_client_reaches_three_brokers_by_one_port(place: Place, tmp_path: Path) -> None:
    skip_unless_root("unshare", "mount")  # for the client's own /etc/hosts
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost " + " ".join(NAMES.values()) + "\n")
    port = place.proxy.port
    settings = place.cluster.certificates.client()
    settings["bootstrap.servers"] = ",".join(f"{name}:{port}" for name in NAMES.values())
    client = [sys.executable, "-c", CLIENT, json.dumps(settings), str(COUNT)]
    inside = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, "client", *client], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == str([(name, port) for name in NAMES.values()])
    # Each broker led a partition, so that each was reached: the client checks the name in its certificate.
    partitions = topic_at(place.cluster[1], "t").partitions
    assert {each.leader_id for each in partitions} == {1, 2, 3}


@pytest.mark.parametrize("number", NAMES)
def test_a_name_leads_to_its_broker(place: Place, number: int) -> None:
    context = ssl.create_default_context(cafile=str(place.cluster.certificates.ca))
    with (
        socket.create_connection(("127.0.0.1", place.proxy.port), 60) as raw,
        context.wrap_socket(raw, server_hostname=NAMES[number]) as secured,
    ):
        certificate = secured.getpeercert()
    assert certificate is not None
    assert certificate["subjectAltName"] == (("DNS", NAMES[number]),)


def test_another_name_and_plain_text_lead_nowhere(place: Place) -> None:
    context = ssl.create_default_context(cafile=str(place.cluster.certificates.ca))
    with socket.create_connection(("127.0.0.1", place.proxy.port), 60) as raw, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(raw, server_hostname="kafka-4.example.com")
    with socket.create_connection(("127.0.0.1", place.proxy.port), 60) as raw:
        raw.sendall(bytes.fromhex("0000000c001200000000000700026d65"))  # ApiVersions
        with contextlib.suppress(ConnectionError):  # as good an end
            assert raw.recv(1) == b""
