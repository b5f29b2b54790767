"""kafka-python's integration tests, from its source distribution, run by pytest in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.interop.packages import MissingError, cache_folder, run_step

VERSION = "3.0.12"

# The source distribution lacks two modules of its tests; against a broker that runs already they have nothing to do.
SERVICE_STUB = """class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self): ...
    def close(self): ...
    def dump_logs(self): ...
    def wait_for(self, *args, **kwargs): ...


class SpawnedService(ExternalService):
    def __init__(self, *args, **kwargs): ...
"""


def sources() -> Path:
    """The unpacked source distribution in `.cache`, completed with the stubs; raises MissingError."""
    with cache_folder(f"kafka-python-{VERSION}") as folder:
        if not (folder / "test" / "service.py").exists():
            log = folder / "fetched.txt"
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "kafka-python"]
            run_step([*pip, "--dest", ".", f"kafka-python=={VERSION}"], folder, log, "pip download kafka-python")
            archive = next(folder.glob("*.tar.gz"))
            run_step(["tar", "xzf", archive.name, "--strip-components=1"], folder, log, "tar")
            archive.unlink()
            if not (folder / "test" / "integration").exists():
                raise MissingError(f"kafka-python {VERSION} carries no integration tests")
            (folder / "test" / "__init__.py").touch()
            (folder / "test" / "service.py").write_text(SERVICE_STUB)
        return folder


def inferred_version(bootstrap: str) -> tuple[int, ...]:
    """The version of Kafka that kafka-python takes the broker for, from its ApiVersions."""
    # This runs in a process of its own: importing kafka-python warns of deprecations, which are errors in our tests.
    code = (
        "import sys, kafka; client = kafka.KafkaConsumer(bootstrap_servers=sys.argv[1]); "
        "print(*client.config['api_version']); client.close()"
    )
    command = [sys.executable, "-c", code, bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-1000:]
    return tuple(int(part) for part in done.stdout.split())


def run_suite(bootstrap: str, folder: Path, arguments: tuple[str, ...] = ()) -> dict[str, str | None]:
    """Run the tests and return test → what failed, None where it passed; skipped ones are left out.

    The SSL file is left out: it starts brokers of its own.
    """
    report = folder / "report.xml"
    version = ".".join(str(part) for part in inferred_version(bootstrap))
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_ROOT": str(folder),
        "KAFKA_VERSION": version,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "test/integration"]
    command += [
        "--ignore=test/integration/test_ssl_integration.py",
        f"--junitxml={report}",
        "--timeout=120",
        *arguments,
    ]
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(command, cwd=sources(), env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=1200)
    return read_report(report)


def read_report(report: Path) -> dict[str, str | None]:
    """Test → what failed, None where it passed, from a report of pytest; skipped ones are left out."""
    outcomes: dict[str, str | None] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        failed = case.find("failure")
        if failed is None:
            failed = case.find("error")
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}::{case.get('name')}"
        outcomes[name] = None if failed is None else str(failed.get("message"))[:300]
    return outcomes
