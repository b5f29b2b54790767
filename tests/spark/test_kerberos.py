"""The connector logs in by GSSAPI beside MIT's KDC: its source and its exactly-once sink, on driver and executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.settings.properties import format_properties
from pyspark_odradek.topic_sink.at_least_once import NO_KERBEROS
from tests.spark.jobs import ROOT
from tests.spark.kerberos_job import RECORDS
from tests.spark.test_versions import require_java
from tests.support.nodes.kerberos import REALM, KerberosNode, Realm, jaas, require_kerberos


def ran(realm: Realm, settings: dict[str, str], topic: str, folder: Path) -> dict[str, object]:
    folder.mkdir()
    file = folder / "client.properties"
    file.write_text(format_properties(settings))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.kerberos_job", file, topic, folder],
        env=os.environ | realm.variables | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_source_and_sink_log_in_by_keytab_and_by_ticket(tmp_path: Path) -> None:
    require_kerberos()
    require_java()
    with Realm(tmp_path / "realm") as realm:
        realm.add("kafka/localhost", "alice")
        keytab = realm.keytab("alice")
        cache = realm.tickets("alice", keytab)
        of_cache = f'useTicketCache=true ticketCache="{cache}" principal="alice@{REALM}"'
        entries = {
            "keytab": jaas(f"alice@{REALM}", keytab),
            "ticket": f"com.sun.security.auth.module.Krb5LoginModule required {of_cache};",
        }
        with KerberosNode(tmp_path / "node", realm, realm.keytab("kafka/localhost")).start() as node:
            for by, entry in entries.items():
                settings = {
                    "bootstrap.servers": node.kerberos_bootstrap,
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "GSSAPI",
                    "sasl.kerberos.service.name": "kafka",
                    "sasl.jaas.config": entry,
                }
                found = ran(realm, settings, f"by-{by}", tmp_path / by)
                assert found["copied"] == [str(number) for number in range(RECORDS)], by
                assert NO_KERBEROS in str(found["refused"]) and "delivery=exactly_once" in str(found["refused"]), by
