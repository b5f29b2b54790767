"""The command line over TLS: both clients take the same properties file, and say what is wrong with it."""

from __future__ import annotations

import asyncio
import datetime
import gc
import shutil
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cli import errors
from odradek.security.tls.development import pkcs12_of
from tests.support.clients.cli import odradek, odradek_process
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import Node, free_port
from tests.support.nodes.tls_node import TlsNode

# Handshakes that fail are the subject: asyncio leaves some of their sockets to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with a key and a certificate for 127.0.0.1 that signs itself."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    both = folder / "store.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return both


@pytest.fixture(scope="module")
def tls_node(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a node behind a proxy that ends TLS and asks clients for a certificate."""
    port, plain_port = free_port(), free_port()
    directory = tmp_path_factory.mktemp("node")
    listeners = f"PLAINTEXT://127.0.0.1:{plain_port},CONTROLLER://127.0.0.1:{free_port()}"
    advertised = {"listeners": listeners, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    controller = listeners.rpartition(":")[2]
    advertised["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
    node = Node(directory, dict(advertised))
    node.port = plain_port
    with node, proxy(port, plain_port, store):
        yield f"127.0.0.1:{port}"


class proxy:  # noqa: N801 - read as a verb
    """A TLS listener in a thread of its own, whose bytes go to a plain port and back."""

    def __init__(self, port: int, target: int, store: Path) -> None:
        self._port, self._target, self._store = port, target, store
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()
        with warnings.catch_warnings():
            # asyncio leaves the socket of a handshake that was cancelled to the collector.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    async def _run(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self._store))
        context.load_cert_chain(self._store)
        context.verify_mode = ssl.CERT_REQUIRED
        self._loop.set_exception_handler(lambda loop, details: None)  # clients that fail the handshake are the test
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=context)
        self._ready.set()
        await self._stopped.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports let go of their sockets in the next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass  # either side may hang up
            finally:
                sink.close()

        try:
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        finally:
            far_writer.transport.abort()
            writer.transport.abort()


def properties(folder: Path, **values: object) -> Path:
    path = folder / "client.properties"
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in values.items()))
    return path


def test_both_clients_take_the_same_file(tls_node: str, store: Path, tmp_path: Path) -> None:
    file = properties(
        tmp_path,
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_location=store,
        ssl_keystore_type="PEM",
        ssl_keystore_location=store,
    )
    config = ("--command-config", file)
    odradek(tls_node, "topics", "create", "--topic", "secret", *config)
    odradek_process(tls_node, "produce", "--topic", "secret", *config, stdin=b"one\ntwo\n")
    read = odradek_process(tls_node, "consume", "--topic", "secret", "--from-beginning", "--to-end", *config)
    assert read.stdout == b"one\ntwo\n"


def test_a_peer_that_cannot_be_trusted(tls_node: str, store: Path, tmp_path: Path) -> None:
    file = properties(tmp_path, security_protocol="SSL", ssl_keystore_type="PEM", ssl_keystore_location=store)
    for command in (["topics", "list"], ["consume", "--topic", "secret"]):
        done = odradek_process(tls_node, *command, "--command-config", file, code=errors.UNREACHABLE)
        said = done.stderr.decode()
        assert "certificate" in said, said
        assert said.count("\n") <= 2  # the rate of nothing


def test_plaintext_to_a_tls_port_says_what_to_set(tls_node: str, tmp_path: Path) -> None:
    ran = odradek(tls_node, "topics", "list", code=errors.UNREACHABLE)
    assert "does that listener expect TLS? Set security.protocol=SSL" in ran.err


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", ""])
def test_stores_of_java_are_read_for_both_clients(kind: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    listener = "listener.name.external."
    required = certificates.server(listener) | {f"{listener}ssl.client.auth": "required"}
    alice = certificates.authority.issue("alice", now=datetime.datetime.now(datetime.UTC))
    store = tmp_path / "alice.p12"
    store.write_bytes(pkcs12_of(alice, "secret"))
    settings = {"ssl_keystore_type": kind} if kind else {}
    file = properties(
        tmp_path,
        security_protocol="SSL",
        ssl_keystore_location=store,
        ssl_keystore_password="secret",
        ssl_truststore_location=certificates.ca,
        **settings,
    )
    with TlsNode(tmp_path, required) as node:
        odradek(node.tls_address, "topics", "create", "--topic", "t", "--command-config", file)
        odradek_process(node.tls_address, "produce", "--topic", "t", "--command-config", file, stdin=b"one\n")


def test_a_store_that_is_not_pem(tls_node: str, tmp_path: Path) -> None:
    wrong = tmp_path / "store.jks"
    wrong.write_bytes(b"\xfe\xed\xfe\xed nonsense")
    file = properties(tmp_path, security_protocol="SSL", ssl_truststore_location=wrong)
    ran = odradek(tls_node, "topics", "list", "--command-config", file, code=errors.BAD_CONFIG)
    assert f"ssl.truststore.location={wrong}: " in ran.err and "is ssl.truststore.password right?" in ran.err
    done = odradek_process(tls_node, "consume", "--topic", "t", "-q", "--command-config", file, code=errors.BAD_CONFIG)
    assert done.stderr.count(b"\n") == 1
