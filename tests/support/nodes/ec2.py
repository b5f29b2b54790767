"""A machine of EC2 as scripts see it: metadata behind tokens (IMDSv2), `aws`, `mount`, `systemctl` over folders."""

from __future__ import annotations

import http.server
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import PATIENCE_S

RECIPE = Path(__file__).resolve().parents[3] / "deploy" / "ec2-spot"
ZONE = "eu-west-1b"
# Folders of the machine in place of the system's.
PLACES = {
    "/etc/odradek": "etc",
    "/var/lib/odradek": "var/odradek",
    "/var/lib/cloud/scripts/per-boot": "per-boot",
    "/opt/odradek/ec2-spot": "scripts",
    "/dev/disk/by-id": "dev",
}
# Programs of the machine. Volumes are folders; a device is a link to one, and so is what is mounted.
PROGRAMS = {
    "aws": """
words=$*
case "$2 $*" in
describe-volumes*attachment.instance-id,Values=*)
    for volume in "$ROOT"/volumes/*; do
        [ ! -e "$volume/instance" ] || [ "$(cat "$volume/instance")" != "${words##*Values=}" ] ||
            printf '%s\\t%s\\n' "$(basename "$volume")" "$(cat "$volume/node-id")"
    done ;;
describe-volumes*availability-zone,Values=eu-west-1b*)
    for volume in "$ROOT"/volumes/*; do
        [ -e "$volume/attached" ] || printf '%s\\t%s\\n' "$(basename "$volume")" "$(cat "$volume/node-id")"
    done ;;
attach-volume*)
    mkdir "$ROOT/volumes/$4/attached" || exit 254
    echo "$6" > "$ROOT/volumes/$4/instance"
    ln -s "$ROOT/volumes/$4/disk" "$ROOT/dev/nvme-Amazon_Elastic_Block_Store_$(echo "$4" | tr -d -)" ;;
detach-volume*)
    rm "$ROOT/dev/nvme-Amazon_Elastic_Block_Store_$(echo "$4" | tr -d -)"
    rm "$ROOT/volumes/$4/instance"
    rmdir "$ROOT/volumes/$4/attached" ;;
*) exit 252 ;;
esac""",
    "blkid": '[ -e "$1/formatted" ]',
    "mkfs.xfs": 'touch "$2/formatted"',
    "mountpoint": '[ -L "$2" ]',
    "mount": 'rmdir "$4" && ln -s "$(readlink -f "$3")" "$4"',
    "umount": 'rm "$1"',
    "chown": ":",
    "systemctl": """
case "$1" in
start) echo "$2" >> "$ROOT/started" ;;
disable) echo "$2" >> "$ROOT/disabled" ;;
show) cat "$ROOT/pid" ;;
stop) kill "$(cat "$ROOT/pid")"; while kill -0 "$(cat "$ROOT/pid")" 2> /dev/null; do sleep 0.05; done ;;
esac""",
}


class Metadata(http.server.BaseHTTPRequestHandler):
    """The metadata of the server's machine: nothing without a token that was given out."""

    server: Machine

    def do_PUT(self) -> None:
        if self.path != "/latest/api/token" or "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
            self._answer(400, "")
            return
        token = secrets.token_hex(8)
        self.server.tokens.add(token)
        self._answer(200, token)

    def do_GET(self) -> None:
        found = self.server.metadata.get(self.path.removeprefix("/latest/meta-data/"))
        if self.headers["X-aws-ec2-metadata-token"] not in self.server.tokens:
            self._answer(401, "")
        elif found is None:
            self._answer(404, "")
        else:
            self._answer(200, found)

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class Machine(http.server.ThreadingHTTPServer):
    """One machine; machines over one folder have the same volumes.

    Attributes:
        metadata: the text at each path of its metadata, which a test changes as EC2 does.
    """

    daemon_threads = True

    def __init__(self, root: Path, address: str, instance_type: str, market: str = "spot") -> None:
        super().__init__(("127.0.0.1", 0), Metadata)
        self.root = root
        self.tokens: set[str] = set()
        self.metadata = {
            "instance-id": f"i-{address.rpartition('.')[2]}",
            "placement/availability-zone": ZONE,
            "placement/region": ZONE[:-1],
            "instance-type": instance_type,
            "instance-life-cycle": market,
            "local-ipv4": address,
        }
        for name in ("bin", "dev", "etc", "per-boot", "scripts", "var", "volumes"):
            (root / name).mkdir(exist_ok=True)
        for name, text in PROGRAMS.items():
            program = root / "bin" / name
            program.write_text(f"#!/bin/sh\nset -eu\nROOT={root}\n{text}\n")
            program.chmod(0o755)
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def run(self, script: str, **variables: str) -> subprocess.Popen[str]:
        """A script of the recipe, with the machine's folders in place of the system's."""
        for file in RECIPE.glob("*.sh"):
            text = file.read_text()
            for path, place in PLACES.items():
                text = text.replace(path, str(self.root / place))
            # A machine with far too much to do needs longer than the notice lets it.
            text = text.replace("--timeout 40", f"--timeout {PATIENCE_S:.0f}")
            text = text.replace("timeout 45", f"timeout {PATIENCE_S:.0f}")
            (self.root / "scripts" / file.name).write_text(text)
        return self._run(self.root / "scripts" / script, variables)

    def reboot(self) -> subprocess.Popen[str]:
        """Boot again: nothing is mounted, systemd has created the unit's state folder, and the boot script runs."""
        (self.root / "var" / "odradek").unlink()
        (self.root / "var" / "odradek").mkdir()
        (script,) = (self.root / "per-boot").iterdir()
        return self._run(script, {})

    def _run(self, script: Path, variables: Mapping[str, str]) -> subprocess.Popen[str]:
        path = f"{self.root / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        quick = {"PATH": path, "AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint, "ODRADEK_POLL_SECONDS": "0.1"}
        return subprocess.Popen(
            ["/bin/sh", str(script)],
            env=quick | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def make_volume(root: Path, name: str, node_id: int) -> Path:
    """An empty volume for a broker; returns its disk."""
    volume = root / "volumes" / name
    (volume / "disk").mkdir(parents=True)
    (volume / "node-id").write_text(str(node_id))
    return volume / "disk"
