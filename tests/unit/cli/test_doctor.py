"""`odradek doctor`: its findings from given facts, without a machine or a cluster in such a state."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from odradek.admin.cluster_checks import check_cluster
from odradek.admin.cluster_facts import ClusterFacts, GroupFacts
from odradek.admin.common_checks import check_expiry
from odradek.admin.finding import Finding, Report, Severity, named
from odradek.cli.doctor.machine import DirectoryFacts, MachineFacts, check_machine, inspect_machine
from odradek.protocol.messages.metadata_response import MetadataResponsePartition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD_DIRECTORY = DirectoryFacts(Path("/data/a"), "", 1, 0.5, [1.0, 2.0, 30.0], 500e6)
GOOD_MACHINE = MachineFacts(1_000_000, 0, 60, [GOOD_DIRECTORY])


def found(facts: ClusterFacts) -> dict[str, Finding]:
    checked = check_cluster(facts, now=NOW, apart_s=10, honoured=lambda of, key, value: True)
    return {each.check: each for each in checked}


def partition(
    *replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None
) -> MetadataResponsePartition:
    in_sync = list(replicas if isr is None else isr)
    return MetadataResponsePartition(
        leader_id=replicas[0] if leader is None else leader, replica_nodes=list(replicas), isr_nodes=in_sync
    )


def good_cluster() -> ClusterFacts:
    """Three brokers in three racks, a topic that is read."""
    keys = [("orders", number) for number in range(3)]
    placed = [partition(1, 2, 3), partition(2, 3, 1), partition(3, 1, 2)]
    return ClusterFacts(
        racks={1: "a", 2: "b", 3: "c"},
        voters=[1, 2, 3],
        round_trips_ms={1: 0.1, 2: 1.0, 3: 2.0},
        clock_ahead_ms=500.0,
        partitions=dict(zip(keys, placed, strict=True)),
        min_isr={"orders": 2},
        sizes={1: 100, 2: 100, 3: 100},
        begins=dict.fromkeys(keys, 0),
        ends=dict.fromkeys(keys, 10),
        read=set(keys),
        groups={"billing": GroupFacts(1, 5_000, 4_000, 10)},
    )


def test_a_good_cluster_has_no_findings() -> None:
    assert found(good_cluster()) == {}
    assert list(check_machine(GOOD_MACHINE)) == []


@pytest.mark.parametrize(
    ("facts", "check", "severity"),
    [
        (replace(GOOD_MACHINE, descriptors=1024), "file-limit", Severity.BAD),
        (replace(GOOD_MACHINE, descriptors=65536), "file-limit", Severity.WARNING),
        (replace(GOOD_MACHINE, swap_bytes=1 << 30), "swap", Severity.WARNING),
        (replace(GOOD_DIRECTORY, problem="Permission denied"), "log-directory", Severity.BAD),
        (replace(GOOD_DIRECTORY, sync_ms=[30.0] * 3), "fsync", Severity.WARNING),
        (replace(GOOD_DIRECTORY, sync_ms=[300.0] * 3), "fsync", Severity.BAD),
        (replace(GOOD_DIRECTORY, write_bytes_s=50e6), "disk-speed", Severity.WARNING),
        (replace(GOOD_DIRECTORY, write_bytes_s=5e6), "disk-speed", Severity.BAD),
        (replace(GOOD_DIRECTORY, free_share=0.1), "disk-space", Severity.WARNING),
        (replace(GOOD_DIRECTORY, free_share=0.01), "disk-space", Severity.BAD),
    ],
)
def test_each_problem_of_a_machine_is_found(
    facts: MachineFacts | DirectoryFacts, check: str, severity: Severity
) -> None:
    machine = facts if isinstance(facts, MachineFacts) else replace(GOOD_MACHINE, directories=[facts])
    assert [(each.check, each.severity) for each in check_machine(machine)] == [(check, severity)]


def test_no_limit_of_descriptors_and_a_low_swappiness_are_no_problem() -> None:
    assert not list(check_machine(replace(GOOD_MACHINE, descriptors=-1)))
    assert not list(check_machine(replace(GOOD_MACHINE, swap_bytes=1 << 30, swappiness=1)))


def test_directories_that_share_a_disk_are_named() -> None:
    other = replace(GOOD_DIRECTORY, path=Path("/data/b"))
    (finding,) = check_machine(replace(GOOD_MACHINE, directories=[GOOD_DIRECTORY, other]))
    assert (finding.check, finding.subjects) == ("shared-disk", ["/data/a", "/data/b"])
    assert not list(check_machine(replace(GOOD_MACHINE, directories=[GOOD_DIRECTORY, replace(other, device=2)])))


def test_a_machine_is_read_from_its_kernel_and_its_disk(tmp_path: Path) -> None:
    proc, data = tmp_path / "proc", tmp_path / "data"
    (proc / "sys" / "vm").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 100 kB\nSwapTotal:  2048 kB\n")
    (proc / "sys" / "vm" / "swappiness").write_text("60\n")
    synced: list[int] = []
    # The directory is not there yet: that above it is looked at, and left as it was.
    facts = inspect_machine([data], proc=proc, descriptors=5, sync=synced.append, written_bytes=1 << 20)
    assert (facts.descriptors, facts.swap_bytes, facts.swappiness) == (5, 2048 * 1024, 60)
    (directory,) = facts.directories
    assert (directory.path, directory.problem) == (data, "")
    assert len(directory.sync_ms) == len(synced) - 1 and directory.write_bytes_s > 0
    assert 0 < directory.free_share <= 1 and [each.name for each in tmp_path.iterdir()] == ["proc"]


def test_a_disk_whose_fsync_is_slow_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def sync(descriptor: int) -> None:
        now[0] += 0.2

    facts = inspect_machine([tmp_path], descriptors=1_000_000, sync=sync, written_bytes=1 << 20)
    checks = {each.check: each for each in check_machine(facts)}
    assert checks["fsync"].severity is Severity.BAD and "200.0 ms" in checks["fsync"].seen
    assert checks["disk-speed"].severity is Severity.BAD and "5 MB/s" in checks["disk-speed"].seen


def test_a_directory_that_cannot_be_written_to_is_found(tmp_path: Path) -> None:
    plain = tmp_path / "file"
    plain.write_text("")
    facts = inspect_machine([plain / "data"], descriptors=1_000_000)
    assert "log-directory" in {each.check for each in check_machine(facts)}


def test_a_directory_whose_name_the_disk_refuses_is_found(tmp_path: Path) -> None:
    (directory,) = inspect_machine([tmp_path / ("x" * 300)], descriptors=1_000_000, written_bytes=1 << 20).directories
    # Newer Pythons take such a directory for one that is not there.
    assert directory.problem in ("File name too long", "")


def test_a_quorum_of_an_even_number_tolerates_no_more_failures() -> None:
    facts = good_cluster()
    facts.voters = [1, 2, 3, 4]
    assert found(facts).keys() == {"even-voters"}
    facts.voters = [1, 2]
    assert found(facts)["few-voters"].severity is Severity.BAD


@pytest.mark.parametrize(
    ("round_trips_ms", "check"),
    [
        ({1: 0.1, 2: 5.0}, None),
        ({1: 0.1, 2: 20.0}, "round-trip"),
        ({1: 10.0, 2: 12.0}, "round-trip-unknown"),
        ({1: 10.0, 2: 12.0, 3: 40.0}, "round-trip"),
    ],
)
def test_voters_with_long_round_trips(round_trips_ms: dict[int, float], check: str | None) -> None:
    facts = good_cluster()
    facts.round_trips_ms = round_trips_ms
    assert list(found(facts)) == [check] * (check is not None)


def test_a_round_trip_that_is_known_for_certain_names_the_pair() -> None:
    facts = good_cluster()
    facts.round_trips_ms = {1: 0.1, 2: 20.1, 3: 1.0}
    assert found(facts)["round-trip"].subjects == ["1 and 2 (20 ms or more)", "2 and 3 (19 ms or more)"]


@pytest.mark.parametrize(
    ("ahead_ms", "error_ms", "severity"),
    [(900.0, 0.0, None), (2_000.0, 1_500.0, None), (-2_000.0, 100.0, 1), (90_000.0, 100.0, 0)],
)
def test_clock_skew(ahead_ms: float, error_ms: float, severity: int | None) -> None:
    facts = good_cluster()
    facts.clock_ahead_ms, facts.clock_error_ms = ahead_ms, error_ms
    assert [each.severity for each in found(facts).values()] == ([] if severity is None else [severity])


def test_a_cluster_without_racks_is_a_note() -> None:
    facts = good_cluster()
    facts.racks = dict.fromkeys(facts.racks)
    assert found(facts)["no-racks"].severity is Severity.NOTE
    facts.racks = {1: None}
    assert "no-racks" not in found(facts)


def test_replicas_on_brokers_without_racks_share_no_known_rack() -> None:
    facts = good_cluster()
    facts.racks |= {4: None, 5: None}
    facts.partitions["orders", 0] = partition(4, 5, 4)
    assert "one-rack" not in found(facts)
    facts.racks |= {4: "a", 5: "a"}
    assert found(facts)["one-rack"].subjects == ["orders-0"]


def test_replicas_and_voters_on_one_of_several_machines() -> None:
    facts = good_cluster()
    facts.hosts = dict.fromkeys(facts.racks, "laptop")
    assert not {"one-machine", "voters-on-one-machine"} & found(facts).keys()
    facts.hosts |= {3: "other"}
    facts.partitions["orders", 0] = partition(1, 2)
    assert found(facts)["one-machine"].subjects == ["orders-0"]
    assert found(facts)["voters-on-one-machine"].subjects == ["laptop"]
    facts.hosts |= {2: None}
    assert not {"one-machine", "voters-on-one-machine"} & found(facts).keys()


def test_advice_for_two_replicas_is_three_first() -> None:
    facts = good_cluster()
    facts.min_isr = {"orders": 1}
    assert "replicas, then" not in found(facts)["min-insync-replicas"].fix
    facts.partitions["orders", 0] = partition(1, 2)
    assert found(facts)["min-insync-replicas"].fix.startswith("have 3 replicas, then `odradek configs alter")


def test_every_replica_that_must_be_in_sync_stops_producers() -> None:
    facts = good_cluster()
    facts.min_isr = {"orders": 3}
    assert found(facts).keys() == {"min-insync-replicas-of-all"}


@pytest.mark.parametrize(
    ("group", "check"),
    [
        (GroupFacts(1, 1_000, 1_100, 100), "group-falls-behind"),
        (GroupFacts(1, 1_100, 1_000, 100), None),  # it catches up
        (GroupFacts(1, 10, 110, 100), None),  # a moment behind
        (GroupFacts(1, 1_000, 1_100, 10_000), None),  # a second behind, at this rate
        (GroupFacts(0, 1_000, 1_000, 0), "group-without-members"),
        (GroupFacts(0, 10, 10, 0), None),
    ],
)
def test_groups_that_fall_behind(group: GroupFacts, check: str | None) -> None:
    facts = good_cluster()
    facts.groups = {"slow": group}
    assert list(found(facts)) == [check] * (check is not None)


def test_settings_of_apache_kafka_are_not_reported_as_ignored() -> None:
    facts = good_cluster()
    facts.settings = {"broker 1": {"num.io.threads": "4"}}

    def checks() -> list[str]:
        checked = check_cluster(facts, now=NOW, apart_s=10, honoured=lambda of, key, value: False)
        return [each.check for each in checked]

    assert checks() == []
    facts.is_ours = True
    assert checks() == ["ignored-setting"]


@pytest.mark.parametrize(("days", "severity"), [(40, None), (20, 1), (3, 0), (-1, 0)])
def test_certificates_that_expire(days: int, severity: int | None) -> None:
    checked = check_expiry("broker 1", NOW + timedelta(days=days), NOW)
    assert [each.severity for each in checked] == ([] if severity is None else [severity])


def test_a_report_has_the_worst_first_and_a_few_names() -> None:
    report = Report()
    report.add([Finding(severity, "x", "seen", "why", "fix") for severity in (2, 0, 1)])  # type: ignore[arg-type]  # any number sorts
    assert [each.severity for each in report.worst_first] == [0, 1, 2]
    assert not Report().is_bad
    assert named(["a", "b"]) == "a, b"
    assert named([str(number) for number in range(10)]) == "0, 1, 2, 3 and 6 more"


def test_each_check_of_the_page_has_a_test() -> None:
    root = Path(__file__).resolve().parents[3]
    rows = re.findall(r"^\| (`[^|]*`) \|", (root / "docs" / "doctor.md").read_text(), re.MULTILINE)
    checks = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert len(checks) > 30
    files = (Path(__file__), root / "tests" / "integration" / "test_cli_doctor.py")
    written = "".join(path.read_text() for path in files)
    by_text = {"certificate": "the certificate of", "unclean-election": "unclean.leader.election.enable is true"}
    assert not {check for check in checks if by_text.get(check, f'"{check}"') not in written}
