"""Several brokers on one machine (`broker.host`): no partition has all its replicas there."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.waiting import PATIENCE_S, eventually

MACHINES = {1: "a", 2: "a", 3: "b", 4: "b"}
PARTITIONS = 8


def test_partitions_are_spread_over_machines_and_plans_know_them(tmp_path: Path) -> None:
    made = ProcessCluster(tmp_path, brokers=4)
    for node in made.brokers:
        with node.plan.config.open("a") as file:
            file.write(f"broker.host={MACHINES[node.node_id]}\n")
    with made:
        where = made.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": where})
        admin.create_topics([NewTopic("spread", PARTITIONS, 2)])["spread"].result(PATIENCE_S)
        together = NewTopic("together", num_partitions=1, replica_assignment=[[1, 2]])
        admin.create_topics([together])["together"].result(PATIENCE_S)

        def replicas() -> list[list[int]] | None:
            found = admin.list_topics("spread", timeout=PATIENCE_S).topics["spread"].partitions
            return [each.replicas for each in found.values()] if len(found) == PARTITIONS else None

        assert all({MACHINES[each] for each in partition} == {"a", "b"} for partition in eventually(replicas))
        brokers = odradek(where, "cluster", "brokers", "--json").json
        assert {each["broker"]: each["machine"] for each in brokers} == MACHINES
        assert "MACHINE" in odradek(where, "cluster", "brokers").rows[0]
        voters = odradek(where, "cluster", "quorum", "--json").json["replicas"]
        assert {each["node"]: each["machine"] for each in voters} == MACHINES
        assert odradek(where, "cluster", "quorum").rows[2][-1] == "MACHINE"
        planned = odradek(where, "partitions", "plan", "--topic", "together", "--json").json["partitions"]
        assert [{MACHINES[each] for each in change["replicas"]} for change in planned] == [{"a", "b"}]
        # A registration outlives its controllers.
        made.stop()
        made.start()
        again = odradek(where, "cluster", "brokers", "--json").json
        assert {each["broker"]: each["machine"] for each in again} == MACHINES


def test_a_broker_without_the_setting_names_its_machine(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, brokers=2) as made:
        brokers = odradek(made.bootstrap_servers, "cluster", "brokers", "--json").json
        assert len({each["machine"] for each in brokers}) == 1 and brokers[0]["machine"]
        assert "MACHINE" not in odradek(made.bootstrap_servers, "cluster", "brokers").rows[0]
