"""aiokafka's own tests of its client against a broker, run by pytest in a process of their own.

Its source distribution has none of them: they are taken from the repository. Their conftest.py starts a broker in a
container; another takes its place, which names the one that runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.interop.kafka_python_suite import read_report
from tests.interop.packages import cache_folder, require_command, run_step

VERSION = "0.14.0"
REPOSITORY = "https://github.com/aio-libs/aiokafka"
# The test files that need a broker; test_sasl.py needs one with Kerberos.
FILES = (
    "test_admin.py",
    "test_client.py",
    "test_conn.py",
    "test_consumer.py",
    "test_coordinator.py",
    "test_pep492.py",
    "test_producer.py",
    "test_sender.py",
    "test_transactional_consumer.py",
    "test_transactional_producer.py",
)
CONFTEST = """import asyncio
import gc
import os

import pytest

HOST, PORT = os.environ["KAFKA_URI"].rsplit(":", 1)


@pytest.fixture(scope="class")
def loop():
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    if not made.is_closed():
        made.run_until_complete(asyncio.sleep(0))
        made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request, loop):
    of = request.cls
    of.loop, of.kafka_host, of.kafka_port, of.hosts = loop, HOST, int(PORT), [f"{HOST}:{PORT}"]
    of.kafka_version = os.environ["KAFKA_VERSION"]
"""
CONFIGURATION = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
markers =
    ssl: needs certificates
"""


def sources() -> Path:
    """The tests in `.cache`, with a conftest.py of ours; raises MissingError."""
    with cache_folder(f"aiokafka-{VERSION}") as folder:
        if not (folder / "pytest.ini").exists():
            git = require_command("git", "git")
            clone = [git, "clone", "-q", "--depth=1", f"--branch=v{VERSION}", REPOSITORY, "repository"]
            shutil.rmtree(folder / "repository", ignore_errors=True)
            run_step(clone, folder, folder / "fetched.txt", "git clone of aiokafka")
            # The package itself is not copied: the installed one is tested.
            shutil.copytree(folder / "repository" / "tests", folder / "tests", dirs_exist_ok=True)
            shutil.rmtree(folder / "repository")
            (folder / "tests" / "conftest.py").write_text(CONFTEST)
            (folder / "pytest.ini").write_text(CONFIGURATION)
        return folder


def run_suite(bootstrap: str, folder: Path, arguments: tuple[str, ...] = ()) -> dict[str, str | None]:
    """Run the tests and return test → what failed, None where it passed; skipped ones are left out."""
    report = folder / "report.xml"
    environment = {
        **os.environ,
        "KAFKA_URI": bootstrap,
        "KAFKA_VERSION": "4.3.0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not ssl", "--timeout=120"]
    command += [f"--junitxml={report}", *arguments, *(f"tests/{name}" for name in FILES)]
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(command, cwd=sources(), env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=1200)
    return read_report(report)
