"""Write the label of this pod's node to /run/odradek/rack: Kubernetes gives labels of nodes to no pod by itself."""

import json
import os
import ssl
import sys
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
if ":" in host:
    host = f"[{host}]"
request = urllib.request.Request(
    f"https://{host}:{port}/api/v1/nodes/{os.environ['NODE_NAME']}",
    headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}"},
)
trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
with urllib.request.urlopen(request, timeout=30, context=trust) as answer:
    labels = json.load(answer)["metadata"].get("labels", {})
wanted = os.environ["RACK_LABEL"]
if wanted not in labels:
    sys.exit(f"the node {os.environ['NODE_NAME']} has no label {wanted}; label it, or set rack.from to none")
Path("/run/odradek/rack").write_text(labels[wanted])
print(f"rack {labels[wanted]}")
