"""Every client reads what every client wrote: keys, nulls, headers and codecs, through groups, at the same time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from odradek.record.reader import read_batches
from tests.interop.client_adapters import READERS, WRITERS, Entry
from tests.interop.packages import MissingError, require_command
from tests.support.clients.confluent import create_topic
from tests.support.nodes.apache_kafka import ApacheKafka
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

# kafka-python reads and writes only the codecs whose packages are installed: the standard library's gzip for certain.
CODECS = {
    "confluent-kafka": ("none", "gzip", "snappy", "lz4", "zstd"),
    "aiokafka": ("none", "gzip", "snappy", "lz4", "zstd"),
    "kafka-python": ("none", "gzip"),
    "kcat": ("none", "gzip", "snappy", "lz4", "zstd"),
}
EVERYONE_READS = ("none", "gzip")
RECORDS = 40


def start(client: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.interop.client_adapters", client, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str], given: str = "") -> str:
    output, errors = process.communicate(given, timeout=150)
    assert process.returncode == 0, errors[-3000:]
    return output


def entries_of(client: str, codec: str) -> list[Entry]:
    """Records with and without a key and, once for each client and codec, without a value."""
    headers = (("client", client), ("codec", codec))
    entries = [
        Entry(None if number % 5 == 0 else f"k{number}", f"{client}/{codec}/{number}", headers)
        for number in range(RECORDS)
    ]
    return [*entries, Entry(f"tombstone/{client}/{codec}", None, headers)]


@pytest.fixture(scope="module")
def clients() -> list[str]:
    """The clients that this machine has."""
    found = list(WRITERS)
    try:
        require_command("kcat", package="kcat")
    except MissingError:
        found.remove("kcat")
    return found


@pytest.mark.parametrize("codecs", ["everyone", pytest.param("all", marks=pytest.mark.slow)])
def test_every_client_reads_what_every_client_wrote(
    broker: Node | ApacheKafka, clients: list[str], codecs: str
) -> None:
    topic = f"matrix-{codecs}"
    create_topic(broker.bootstrap, topic, 3)
    written: list[Entry] = []
    writers = []
    for client in clients:
        for codec in CODECS[client]:
            if codecs == "everyone" and codec not in EVERYONE_READS:
                continue
            entries = entries_of(client, codec)
            written += entries
            process = start(client, "write", broker.bootstrap, topic, codec)
            writers.append((process, json.dumps([entry.as_json() for entry in entries])))
    for process, given in writers:
        finish(process, given)

    readers = [client for client in READERS if client in clients and (codecs == "everyone" or client != "kafka-python")]
    reading = [
        (client, start(client, "read", broker.bootstrap, topic, f"{topic}-{client}", str(len(written))))
        for client in readers
    ]
    for client, process in reading:
        found = [
            Entry(key, value, tuple((name, content) for name, content in headers))
            for key, value, headers in json.loads(finish(process))
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, written)), f"{client} read something else"


@pytest.mark.parametrize("codec", CODECS["kcat"])
def test_kcat_compresses_with_the_given_codec(broker: Node | ApacheKafka, codec: str) -> None:
    """Older releases of librdkafka send plain records where Produce is not advertised from version 0 on."""
    try:
        kcat = require_command("kcat", package="kcat")
    except MissingError as error:
        pytest.skip(str(error))
    topic = f"kcat-{codec}"
    create_topic(broker.bootstrap, topic)
    # Each is worth compressing: librdkafka sends a batch plain that would only grow, and one line may be a batch.
    lines = "".join(f"line {number}{' of many' * 40}\n" for number in range(50))
    command = [kcat, "-P", "-b", broker.bootstrap, "-t", topic, "-z", codec]
    done = subprocess.run(command, input=lines, text=True, capture_output=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    (segment,) = (broker.data_dir / f"{topic}-0").glob("*.log")
    # A codec's number in the format is its place in this list.
    assert {header.compression for _, header in read_batches(segment.read_bytes())} == {CODECS["kcat"].index(codec)}


def test_kcat_is_here_or_the_reason_is_reported() -> None:
    try:
        require_command("kcat", package="kcat")
    except MissingError as error:
        pytest.skip(f"the matrix runs without kcat: {error}")
