"""deploy/helm and deploy/kubernetes: manifests are of this chart, hold to Kubernetes' schemas, and keep rules."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.nodes.pod import MANIFESTS, Manifest, Pod
from tools import render_manifests

FILES = sorted(render_manifests.RENDERED)
CLUSTERS = sorted({*FILES} - render_manifests.ALONE.keys())
# The oldest that the chart takes, and the one that it is rendered for.
VERSIONS = ("1.27", "1.37")
# Arguments that the chart refuses, with a part of the error message.
REFUSED = {
    "--set=load.enabled=true,tls.enabled=true": "speaks plain text",
    "--set=external.enabled=true,external.type=NodePort": "a port for each broker",
}
# Other values than those of the manifests, for Helm.
OTHERS = {
    "few": {"brokers": {"replicas": 1, "antiAffinity": "none", "spreadZones": "none"}, "rack": {"from": "none"}},
    "ports": {"external": {"enabled": True, "type": "NodePort", "nodePorts": [30001, 30002, 30003]}},
    "numbers": {"settings": {"log.cleaner.min.cleanable.ratio": 0.25, "log.segment.bytes": 1 << 30}},
    "soft": {
        "brokers": {"antiAffinity": "preferred", "podLabels": {"team": "streams"}, "podAnnotations": {"a/b": "c"}},
        "controllers": {"tolerations": [{"operator": "Exists"}], "priorityClassName": "high"},
        "antiAffinityBetween": "none",
        "image": {"repository": "registry.example.com/odradek", "tag": "1", "pullSecrets": ["registry"]},
    },
}


def containers(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in objects:
        if each["kind"] in {"StatefulSet", "Job"}:
            spec = each["spec"]["template"]["spec"]
            for container in (*spec.get("initContainers", []), *spec["containers"]):
                yield f"{each['metadata']['name']}/{container['name']}", container


def is_valid(objects: list[dict[str, Any]]) -> None:
    assert objects
    for version in VERSIONS:
        for each in objects:
            kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("file", FILES)
def test_the_manifest_is_of_this_chart(file: str) -> None:
    _, said = (MANIFESTS / file).read_text().splitlines()[:2]
    assert said == f"# {render_manifests.digest(render_manifests.RENDERED[file])}", "run `make manifests`"
    scripts = Manifest(CLUSTERS[0] if file in render_manifests.ALONE else file).maps["odradek-scripts"]
    for path in (render_manifests.CHART / "files").iterdir():
        assert scripts[path.name].strip() == path.read_text().strip()


@pytest.mark.parametrize("file", FILES)
def test_the_manifest_holds_to_the_schemas_of_kubernetes(file: str) -> None:
    is_valid(Manifest(file).objects)


def test_a_wrong_field_does_not_hold_to_them() -> None:
    wrong = Manifest("odradek.yaml").named("StatefulSet", "odradek-broker")
    wrong["spec"]["podManagement"] = "Parallel"
    with pytest.raises(kubernetes_validate.ValidationError, match="podManagement"):
        is_valid([wrong])


@pytest.mark.parametrize("file", CLUSTERS)
def test_no_client_is_sent_to_a_broker_by_chance(file: str) -> None:
    services = [each["spec"] for each in Manifest(file).of_kind("Service")]
    by_pod = [each for each in services if "statefulset.kubernetes.io/pod-name" in each["selector"]]
    assert len(by_pod) == (6 if file == "odradek-tls.yaml" else 0)
    assert all(each["clusterIP"] == "None" for each in services if each not in by_pod)


@pytest.mark.parametrize("file", FILES)
def test_every_container_has_limits_and_may_do_little(file: str) -> None:
    found = dict(containers(Manifest(file).objects))
    nodes = {"odradek-broker/odradek", "odradek-controller/odradek"}
    assert (nodes if file in CLUSTERS else {"odradek-load/load"}) <= found.keys()
    for name, container in found.items():
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
        assert "memory" in container["resources"]["limits"], name
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], name
        assert security["capabilities"] == {"drop": ["ALL"]}, name


def test_pods_of_a_cluster_share_neither_a_host_nor_a_stop() -> None:
    manifest = Manifest("odradek-tls.yaml")
    for role in ("broker", "controller"):
        name = f"odradek-{role}"
        spec = manifest.named("StatefulSet", name)["spec"]
        rules = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        kept_away = {each["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in rules}
        assert kept_away == {"broker", "controller"}
        assert {each["topologyKey"] for each in rules} == {"kubernetes.io/hostname"}
        budget = manifest.named("PodDisruptionBudget", name)["spec"]
        assert budget["maxUnavailable"] == 1
        assert budget["selector"] == spec["selector"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert spec["serviceName"] == manifest.named("Service", name)["metadata"]["name"]


@pytest.fixture(scope="module")
def helm() -> str:
    found = render_manifests.find_helm()
    if found is None:
        pytest.skip("Helm is not here: `make manifests` builds it")
    return found


@pytest.mark.parametrize("file", FILES)
def test_helm_renders_what_is_there(file: str, helm: str) -> None:
    version = render_manifests.version(helm)
    if version not in render_manifests.VERSIONS:
        pytest.skip(f"Helm is {version} here, and the manifests are rendered by {render_manifests.HELM}")
    assert render_manifests.render(helm, file) == (MANIFESTS / file).read_text()


@pytest.mark.parametrize("name", OTHERS)
def test_other_values_hold_to_the_schemas(name: str, helm: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(OTHERS[name]))
    rendered = render_manifests.template(helm, "--values", str(values))
    objects = [each for each in yaml.safe_load_all(rendered) if each]
    is_valid(objects)
    assert ("registry" in rendered) is (name == "soft")
    assert ("nodePort: 30002" in rendered) is (name == "ports")
    assert ("ClusterRole" in rendered) is (name != "few")
    assert ("cleanable.ratio=0.25\n    log.segment.bytes=1073741824\n" in rendered) is (name == "numbers")


@pytest.mark.parametrize("values", REFUSED)
def test_helm_says_what_does_not_go_together(values: str, helm: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render_manifests.template(helm, values)
    assert REFUSED[values] in refused.value.stderr


def test_a_changed_setting_is_an_update_and_the_id_is_kept(helm: str, tmp_path: Path) -> None:
    hashes = set()
    for client_auth in ("none", "required"):
        file = tmp_path / f"{client_auth}.yaml"
        words = f"--set=clusterId=x,tls.enabled=true,tls.clientAuth={client_auth}"
        file.write_text(render_manifests.template(helm, words))
        manifest = Manifest(str(file))
        template = manifest.named("StatefulSet", "odradek-broker")["spec"]["template"]
        hashes.add(template["metadata"]["annotations"]["odradek/configuration"])
        kept = manifest.named("ConfigMap", "odradek-cluster")["metadata"]["annotations"]
        assert kept == {"helm.sh/resource-policy": "keep"}
    assert len(hashes) == 2


def test_a_broker_at_a_port_of_its_host_advertises_that(helm: str, tmp_path: Path) -> None:
    values, file = tmp_path / "values.yaml", tmp_path / "manifest.yaml"
    values.write_text(yaml.safe_dump(OTHERS["ports"]))
    file.write_text(render_manifests.template(helm, "--values", str(values)))
    manifest = Manifest(str(file))
    spec = manifest.named("StatefulSet", "odradek-broker")["spec"]["template"]["spec"]
    del spec["initContainers"]
    for ordinal in (0, 2):
        name = f"odradek-broker-{ordinal}"
        # The settings are written, and then no directory is formatted for such a cluster.
        known = {"spec.nodeName": "node-a"}
        pod = Pod(tmp_path, name, manifest, spec, environment={"CLUSTER_ID": "no id"}, known=known)
        pod.start()
        assert pod.wait() != 0
        settings = (pod.home / "run" / "odradek" / "server.properties").read_text()
        assert f",EXTERNAL://{name}.kafka.example.com:3000{ordinal + 1}\n" in settings
        service = manifest.named("Service", f"{name}-external")["spec"]
        assert [each["nodePort"] for each in service["ports"]] == [30001 + ordinal]
