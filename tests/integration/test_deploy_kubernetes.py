"""deploy/kubernetes: pods of the manifests as processes here, started, probed, drained and replaced one by one."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.clients.cli import odradek
from tests.support.clients.confluent import admin, create_topic, read_all
from tests.support.clients.steady_producer import Steady
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import free_port
from tests.support.nodes.pod import ACCOUNT, Manifest, Pod
from tests.support.waiting import PATIENCE_S, eventually

# Beside what the manifest says: little internal topics, and no waiting for more members.
QUICK = "\noffsets.topic.num.partitions=1\ntransaction.state.log.num.partitions=1\ngroup.initial.rebalance.delay.ms=0\n"
CLUSTER = {"CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw"}
TOKEN = "the token of the pod's account"
LABEL = "topology.kubernetes.io/zone"
FIRST_CONTROLLER = 1000
# The producer retries by itself, and writes each record once.
ONCE: dict[str, str | int | float | bool] = {"enable.idempotence": True, "log_level": 0}


class NodesOnly(http.server.BaseHTTPRequestHandler):
    """Answers as the API server of Kubernetes does to a pod that may only read nodes."""

    def do_GET(self) -> None:
        name = self.path.removeprefix("/api/v1/nodes/")
        allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
        labels = {LABEL: f"zone-{name[-1]}"} if name != "bare" else {}
        body = json.dumps({"kind": "Node", "metadata": {"name": name, "labels": labels}}).encode()
        self.send_response(200 if allowed and self.path.startswith("/api/v1/nodes/") else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[tuple[dict[str, str], Path]]:
    """Variables that lead to an API server that knows nodes, and the folder of a pod's account."""
    certificates = Certificates(tmp_path / "kubernetes")
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(f"{TOKEN}\n")
    (account / "ca.crt").write_text(certificates.ca.read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.issue("kubernetes"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), NodesOnly) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        port = server.server_address[1]
        yield {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}, account
        server.shutdown()
        thread.join()


def broker_spec(manifest: Manifest) -> dict[str, Any]:
    return dict(manifest.named("StatefulSet", "odradek-broker")["spec"]["template"]["spec"])


def controllers(root: Path, manifest: Manifest, count: int = 1) -> list[Pod]:
    """The pods of the StatefulSet of controllers: all of them are the voters."""
    ports = [free_port() for _ in range(count)]
    spec = manifest.named("StatefulSet", "odradek-controller")["spec"]["template"]["spec"]
    pods = []
    for ordinal, port in enumerate(ports):
        environment = {
            "ODRADEK_LISTENERS": f"CONTROLLER://127.0.0.1:{port}",
            "ODRADEK_VOTERS": ",".join(f"{FIRST_CONTROLLER + n}@127.0.0.1:{each}" for n, each in enumerate(ports)),
            "ODRADEK_PROBES": f"127.0.0.1:{free_port()}",
        }
        pods.append(Pod(root, f"odradek-controller-{ordinal}", manifest, spec, environment=environment))
    return pods


def broker(
    root: Path, manifest: Manifest, quorum: Pod, ordinal: int, port: int, kubernetes: tuple[dict[str, str], Path]
) -> Pod:
    """A broker's pod of odradek.yaml, for clients at that port."""
    variables, account = kubernetes
    addresses = f"INTERNAL://127.0.0.1:{free_port()},CLIENT://127.0.0.1:{port}"
    environment = {
        "ODRADEK_LISTENERS": addresses,
        "ODRADEK_ADVERTISED": addresses,
        "ODRADEK_VOTERS": quorum.variable("ODRADEK_VOTERS"),
        "ODRADEK_PROBES": f"127.0.0.1:{free_port()}",
        "ODRADEK_DRAIN_SECONDS": str(int(PATIENCE_S)),
        **variables,
    }
    return Pod(
        root,
        f"odradek-broker-{ordinal}",
        manifest,
        broker_spec(manifest),
        environment=environment,
        known={"spec.nodeName": f"node-{ordinal}"},
        secrets={ACCOUNT: account},
    )


def replace(pod: Pod, while_stopped: Callable[[], object] = lambda: None) -> None:
    """Replace a pod as a StatefulSet does, which goes on when the new pod is ready."""
    if "lifecycle" in pod.container:
        done = pod.pre_stop()
        assert done.returncode == 0, done.stdout
    assert pod.answers("/drained") and pod.probe("livenessProbe")
    assert pod.terminate() == 0
    while_stopped()
    pod.start()
    pod.await_ready()


def quick_manifest() -> Manifest:
    """The manifest of odradek.yaml, with the settings of a test and a cluster's id."""
    settings = Manifest("odradek.yaml").maps["odradek-settings"]["common.properties"] + QUICK
    return Manifest("odradek.yaml", {"odradek-settings": {"common.properties": settings}, "odradek-cluster": CLUSTER})


def assert_each_once(bootstrap: str, topic: str, writers: Sequence[Steady]) -> None:
    """Compare a topic with the acknowledged records of its writers, one of each partition."""
    stored = [(message.partition(), message.value() or b"") for message in read_all(bootstrap, topic, len(writers))]
    for partition, writer in enumerate(writers):
        assert not writer.errors and writer.acknowledged
        here = [value for number, value in stored if number == partition]
        assert sorted(here) == sorted(value for value, _ in writer.acknowledged), "each once"


@pytest.mark.parametrize("replaced", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_pods_are_replaced_one_by_one_and_nothing_is_lost(
    replaced: int, tmp_path: Path, kubernetes: tuple[dict[str, str], Path]
) -> None:
    """The controller's, and as many of the three brokers'."""
    manifest = quick_manifest()
    (quorum,) = controllers(tmp_path, manifest)
    clients = [free_port() for _ in range(3)]
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in clients)
    pods = [broker(tmp_path, manifest, quorum, ordinal, port, kubernetes) for ordinal, port in enumerate(clients)]
    with contextlib.ExitStack() as stack:
        for pod in (quorum, *pods):
            stack.callback(pod.kill)
            pod.start()
        for pod in (quorum, *pods):
            pod.await_ready()
        brokers = odradek(bootstrap, "cluster", "brokers", "--json").json
        assert sorted((each["broker"], each["rack"], each["machine"]) for each in brokers) == [
            (n, f"zone-{n}", f"node-{n}") for n in range(3)
        ]
        create_topic(bootstrap, "orders", 3, copies=3)
        # Ten a second and partition: four pods take a while, and each record costs three brokers.
        writers = [Steady(bootstrap, "orders", number, ONCE, pace_s=0.1) for number in range(3)]
        with contextlib.ExitStack() as writing:
            for writer in writers:
                writing.enter_context(writer)
            for pod in (*reversed(pods[-replaced:]), quorum):
                replace(pod)
        assert_each_once(bootstrap, "orders", writers)

        loading = Manifest("odradek-load.yaml", manifest.maps)
        load = loading.named("Job", "odradek-load")["spec"]["template"]["spec"]
        few = {"ODRADEK_BOOTSTRAP_SERVER": bootstrap, "LOAD_MINUTES": "0.03", "LOAD_RATE": "100"}
        job = Pod(tmp_path, "odradek-load", loading, load, environment=few)
        stack.callback(job.kill)
        job.start()
        assert job.wait() == 0, job.output.read_text()
        assert "0 lost" in job.output.read_text()
        for pod in (*pods, quorum):
            assert pod.terminate() == 0


class Quorum(NamedTuple):
    """The quorum as the brokers describe it; `ends` has the end of each voter's log, by its node.id."""

    leader: int
    epoch: int
    ends: dict[int, int]


def quorum_of(bootstrap: str) -> Quorum:
    found = odradek(bootstrap, "cluster", "quorum", "--json").json
    ends = {each["node"]: each["log_end_offset"] for each in found["replicas"] if each["role"] != "observer"}
    return Quorum(found["leader"], found["leader_epoch"], ends)


@pytest.mark.slow  # the test above replaces the only controller
def test_controllers_are_replaced_one_by_one_and_nothing_is_lost(
    tmp_path: Path, kubernetes: tuple[dict[str, str], Path]
) -> None:
    """Each of the three is stopped and started, the leader among them, and meanwhile the others create a topic."""
    manifest = quick_manifest()
    quorum = controllers(tmp_path, manifest, manifest.named("StatefulSet", "odradek-controller")["spec"]["replicas"])
    voters = {FIRST_CONTROLLER + ordinal: pod for ordinal, pod in enumerate(quorum)}
    assert len(voters) == 3
    clients = [free_port() for _ in range(3)]
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in clients)
    pods = [broker(tmp_path, manifest, quorum[0], ordinal, port, kubernetes) for ordinal, port in enumerate(clients)]
    with contextlib.ExitStack() as stack:
        for pod in (*quorum, *pods):
            stack.callback(pod.kill)
        quorum[0].start()
        eventually(lambda: quorum[0].probe("livenessProbe"))
        assert not quorum[0].probe("readinessProbe"), "one of three has no leader"
        for pod in (*quorum[1:], *pods):
            pod.start()
        for pod in (*quorum, *pods):
            pod.await_ready()
        directories = [pod.home / "var/lib/odradek/data/meta.properties" for pod in quorum]
        formatted = [path.read_text() for path in directories]
        before = quorum_of(bootstrap)
        create_topic(bootstrap, "orders", 3, copies=3)
        writers = [Steady(bootstrap, "orders", number, ONCE, pace_s=0.1) for number in range(3)]
        with contextlib.ExitStack() as writing:
            for writer in writers:
                writing.enter_context(writer)
            for node, pod in reversed(voters.items()):  # a StatefulSet begins with the last
                replace(pod, partial(create_topic, bootstrap, f"without-{node}", 1, copies=3))
                end = max(quorum_of(bootstrap).ends.values())
                eventually(lambda node=node, end=end: quorum_of(bootstrap).ends[node] >= end, pod.output.read_text)
        assert_each_once(bootstrap, "orders", writers)
        after = quorum_of(bootstrap)
        assert before.ends.keys() == after.ends.keys() == voters.keys() and after.leader in voters
        assert after.epoch > before.epoch, "another one leads while the leader is away"
        assert [path.read_text() for path in directories] == formatted, "each has its own data again"
        assert {f"without-{node}" for node in voters} <= set(admin(bootstrap).list_topics(timeout=PATIENCE_S).topics)
        for pod in (*pods, *quorum):
            assert pod.terminate() == 0


def test_a_pod_whose_node_has_no_zone_says_so(tmp_path: Path, kubernetes: tuple[dict[str, str], Path]) -> None:
    variables, account = kubernetes
    manifest = Manifest("odradek.yaml", {"odradek-cluster": CLUSTER})
    spec = broker_spec(manifest)
    pod = Pod(
        tmp_path,
        "odradek-broker-0",
        manifest,
        spec,
        environment=variables,
        known={"spec.nodeName": "bare"},
        secrets={ACCOUNT: account},
    )
    with pytest.raises(AssertionError, match=f"has no label {LABEL}"):
        pod.start()


def test_a_pod_with_tls_has_an_address_outside(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    alone = "".join(
        f"{key}=1\n"
        for key in ("default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor")
    )
    plain = Manifest("odradek-tls.yaml").maps["odradek-settings"]["common.properties"]
    settings = {"common.properties": plain + QUICK + alone}
    manifest = Manifest("odradek-tls.yaml", {"odradek-settings": settings})
    secrets = {}
    for name in ("odradek-broker-tls", "odradek-controller-tls", "odradek-passwords"):
        secrets[name] = tmp_path / name
        secrets[name].mkdir()
    identity = certificates.issue("odradek")
    for name in ("odradek-broker-tls", "odradek-controller-tls"):
        # cert-manager writes key and certificate into two files; the broker also accepts both in one file.
        blocks = re.findall(r"-----BEGIN .*?-----END [^-]+-----\n", identity.read_text(), re.DOTALL)
        (secrets[name] / "tls.key").write_text("".join(each for each in blocks if "PRIVATE KEY" in each))
        (secrets[name] / "tls.crt").write_text("".join(each for each in blocks if "PRIVATE KEY" not in each))
        (secrets[name] / "ca.crt").write_text(certificates.ca.read_text())
    (secrets["odradek-broker-tls"] / "tls-combined.pem").write_text(identity.read_text())
    (quorum,) = controllers(tmp_path, manifest)
    quorum.secrets = secrets
    internal, client, external = (free_port() for _ in range(3))
    spec = broker_spec(manifest)
    advertised = next(each["value"] for each in spec["containers"][0]["env"] if each["name"] == "ODRADEK_ADVERTISED")
    outside = advertised.rpartition(",")[2].replace("9095", str(external))
    inside = f"INTERNAL://127.0.0.1:{internal},CLIENT://127.0.0.1:{client}"
    environment = {
        "ODRADEK_LISTENERS": f"{inside},EXTERNAL://127.0.0.1:{external}",
        "ODRADEK_ADVERTISED": f"{inside},{outside}",
        "ODRADEK_VOTERS": quorum.variable("ODRADEK_VOTERS"),
        "ODRADEK_PROBES": f"127.0.0.1:{free_port()}",
        "ODRADEK_DRAIN_SECONDS": str(int(PATIENCE_S)),
    }
    known = {f"metadata.labels['{LABEL}']": "zone-c", "spec.nodeName": "node-c"}
    outer = Pod(tmp_path, "odradek-broker-0", manifest, spec, environment=environment, known=known, secrets=secrets)
    admin = tmp_path / "admin.properties"
    lines = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": certificates.ca}
    lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": identity}
    admin.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    with contextlib.ExitStack() as stack:
        for pod in (quorum, outer):
            stack.callback(pod.kill)
            pod.start()
        for pod in (quorum, outer):
            pod.await_ready()
        asked = ("cluster", "brokers", "--json", "--command-config", admin)
        (seen,) = odradek(f"127.0.0.1:{client}", *asked).json
        assert (seen["port"], seen["rack"], seen["machine"]) == (client, "zone-c", "node-c")
        (seen,) = odradek(f"127.0.0.1:{external}", *asked).json
        assert (seen["host"], seen["port"]) == ("odradek-broker-0.kafka.example.com", external)
        eventually(lambda: outer.probe("livenessProbe"))
        assert outer.pre_stop().returncode == 0
        assert outer.terminate() == 0
        assert quorum.terminate() == 0
