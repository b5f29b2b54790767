"""A pod of `deploy/kubernetes` as a process here: volumes are folders, commands and probes are the manifest's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.waiting import PATIENCE_S, eventually

MANIFESTS = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
Object = dict[str, Any]


class Manifest:
    """The objects of a file.

    Args:
        maps: keys of ConfigMaps that are others here, or more, by the map's name.
    """

    def __init__(self, file: str, maps: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.objects: list[Object] = [each for each in yaml.safe_load_all((MANIFESTS / file).read_text()) if each]
        self.maps = {each["metadata"]["name"]: dict(each["data"]) for each in self.of_kind("ConfigMap")}
        for name, data in (maps or {}).items():
            self.maps[name] = self.maps.get(name, {}) | dict(data)

    def of_kind(self, kind: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] == kind]

    def named(self, kind: str, name: str) -> Object:
        (found,) = [each for each in self.of_kind(kind) if each["metadata"]["name"] == name]
        return found


class Pod:
    """One pod of a StatefulSet or a Job.

    Args:
        root: holds the folders of all pods.
        name: the name of the pod, by which its claims are kept.
        spec: the spec of the template.
        environment: variables that differ here, mainly addresses.
        known: the values of fields that Kubernetes would set: `spec.nodeName` and labels.
        secrets: folders that replace Secrets, by name.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        manifest: Manifest,
        spec: Object,
        *,
        environment: Mapping[str, str],
        known: Mapping[str, str] | None = None,
        secrets: Mapping[str, Path] | None = None,
    ) -> None:
        self.name = name
        self.home = root / name
        self.manifest = manifest
        self.spec = spec
        self.changed = dict(environment)
        self.known = {"metadata.name": name, **(known or {})}
        self.secrets = dict(secrets or {})
        self.output = root / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        (self.container,) = spec["containers"]

    def start(self) -> None:
        """A new pod: empty folders are new, claims are as they were; init containers run, then the container."""
        assert self.process is None
        for folder in ("tmp", "run", "etc"):
            shutil.rmtree(self.home / folder, ignore_errors=True)
        for container in (*self.spec.get("initContainers", []), self.container):
            self._mount(container)
        for container in self.spec.get("initContainers", []):
            done = self._run(container["command"], container)
            assert done.returncode == 0, done.stdout
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self._words(self.container["command"]),
                env=self._environment(self.container),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def probe(self, name: str) -> bool:
        """Whether a probe succeeds; a node that ended fails the test."""
        assert self.process is not None and self.process.poll() is None, self.output.read_text()
        return self.answers(self.container[name]["httpGet"]["path"])

    def answers(self, path: str) -> bool:
        """Whether that page of the port of probes says yes."""
        url = f"http://127.0.0.1:{self.variable('ODRADEK_PROBES').rpartition(':')[2]}{path}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
                return bool(page.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def await_ready(self) -> None:
        eventually(lambda: self.probe("startupProbe"), self.output.read_text)
        eventually(lambda: self.probe("readinessProbe"), self.output.read_text)

    def pre_stop(self) -> subprocess.CompletedProcess[str]:
        return self._run(self.container["lifecycle"]["preStop"]["exec"]["command"], self.container)

    def terminate(self) -> int:
        """SIGTERM, as after preStop; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        assert self.process is not None
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def variable(self, name: str) -> str:
        return self._environment(self.container)[name]

    def _mount(self, container: Object) -> None:
        volumes = {each["name"]: each for each in self.spec.get("volumes", [])}
        for mount in container["volumeMounts"]:
            folder = self.home / mount["mountPath"].lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            volume = volumes.get(mount["name"], {})
            if "configMap" in volume:
                for key, text in self.manifest.maps[volume["configMap"]["name"]].items():
                    (folder / key).write_text(self._here(text))
            elif "secret" in volume:
                for file in self.secrets[volume["secret"]["secretName"]].iterdir():
                    shutil.copy(file, folder)

    def _here(self, text: str) -> str:
        """A text with this pod's folders in place of the container's."""
        for path in (ACCOUNT, "/etc/odradek", "/run/odradek", "/var/lib/odradek"):
            place = self.secrets[path] if path in self.secrets else self.home / path.lstrip("/")
            text = text.replace(path, str(place))
        return text

    def _words(self, command: list[str]) -> list[str]:
        return [self._here(word) for word in command]

    def _environment(self, container: Object) -> dict[str, str]:
        found = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        for each in container["env"]:
            found[each["name"]] = self.changed.get(each["name"], "") or self._value(each)
        found |= {key: value for key, value in self.changed.items() if key.startswith("KUBERNETES_")}
        return found

    def _value(self, variable: Object) -> str:
        if "value" in variable:
            return str(variable["value"])
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return self.known[source["fieldRef"]["fieldPath"]]
        wanted = source["configMapKeyRef"]
        return str(self.manifest.maps[wanted["name"]][wanted["key"]])

    def _run(self, command: list[str], container: Object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words(command),
            env=self._environment(container),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
