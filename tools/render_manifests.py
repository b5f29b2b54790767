"""Render the plain manifests of deploy/kubernetes from the chart of deploy/helm, by Helm itself.

    python -m tools.render_manifests           # write them (`make manifests`)

Helm is taken from the path, or built by Go into `.cache/bin`. Each manifest begins with a digest of what it comes from,
so that a test sees without Helm that it is of this chart.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "odradek"
MANIFESTS = ROOT / "deploy" / "kubernetes"
# The manifest, and the values that it has beside the chart's own.
RENDERED = {
    "odradek.yaml": "values.yaml",
    "odradek-tls.yaml": "values-tls.yaml",
    "odradek-load.yaml": "values-load.yaml",
}
# Manifests that are applied to an existing cluster.
ALONE = {"odradek-load.yaml": "templates/load.yaml"}
NAMESPACE = "odradek"
KUBERNETES = "1.37.0"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
# The versions that the pinned Helm reports. Others may render the same chart with other spaces.
VERSIONS = ("v3.22.0", "v3.22")
BUILT = ROOT / ".cache" / "bin" / "helm"


def find_helm() -> str | None:
    """Helm's command, where it is there."""
    return str(BUILT) if BUILT.exists() else shutil.which("helm")


def build_helm() -> str:
    """Build Helm with Go, which takes minutes. Raises CalledProcessError, and FileNotFoundError without Go."""
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "install", HELM], env={**os.environ, "GOBIN": str(BUILT.parent)}, check=True)
    return str(BUILT)


def version(helm: str) -> str:
    """The version of a command of Helm: `v3.22.0`, or `v3.22` of one that Go built."""
    said = subprocess.run([helm, "version", "--template", "{{.Version}}"], capture_output=True, text=True, check=True)
    return said.stdout.strip()


def digest(values: str) -> str:
    """The hash of the chart and of a file of values."""
    found = hashlib.sha256()
    for path in [*sorted(each for each in CHART.rglob("*") if each.is_file()), MANIFESTS / values]:
        found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def template(helm: str, *arguments: str) -> str:
    """The manifests that Helm renders from the chart with these arguments."""
    command = [helm, "template", "odradek", str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout


def render(helm: str, name: str) -> str:
    """The text of a manifest."""
    values = RENDERED[name]
    head = (
        f"# Rendered from deploy/helm/odradek with deploy/kubernetes/{values} by `make manifests`: change those.\n"
        f"# {digest(values)}\n"
    )
    if name in ALONE:
        rendered = template(helm, "--values", str(MANIFESTS / values), "--show-only", ALONE[name])
    else:
        head += f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n"
        rendered = template(helm, "--values", str(MANIFESTS / values))
    return head + "\n".join(line.rstrip() for line in rendered.splitlines()) + "\n"


def main() -> None:
    helm = find_helm() or build_helm()
    for name in RENDERED:
        (MANIFESTS / name).write_text(render(helm, name))
        print(f"deploy/kubernetes/{name}")


if __name__ == "__main__":
    main()
