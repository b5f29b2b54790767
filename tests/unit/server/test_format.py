"""Formatting the directories of a node, and recognizing them at start."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from random import Random

import pytest

import odradek
from odradek.common.errors import ConfigError
from odradek.common.ports import read_file
from odradek.common.real_io import RealDisk
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.raft.quorum_state import uuid_text
from odradek.raft.snapshot import decode_snapshot
from odradek.server.startup.first_users import first_users
from odradek.server.startup.format import (
    FormatOptions,
    check_storage,
    ensure_formatted,
    format_missing,
    format_storage,
    random_id,
    read_meta_properties,
)
from odradek.server.startup.honoured_settings import CONFIG_CLASSES
from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources
from odradek.settings.node import zero_config
from tests.sim.disk import DiskFaults, SimDisk
from tools.configuration_page import config_classes

DISK = RealDisk()
DYNAMIC = {"controller.quorum.bootstrap.servers": "localhost:9093"}


def settings(directory: Path, **given: str) -> BrokerSettings:
    properties = {"log.dirs": str(directory), **{key.replace("__", "."): value for key, value in given.items()}}
    return resolve(zero_config(properties), Sources({}, lambda path: ""))


def dynamic(directory: Path) -> BrokerSettings:
    return resolve(zero_config({"log.dirs": str(directory), **DYNAMIC}), Sources({}, lambda path: ""))


def format_now(node: BrokerSettings, cluster_id: str = "C", options: FormatOptions | None = None) -> list[str]:
    return format_storage(DISK, node, cluster_id, options or FormatOptions(), random=Random(1), now_ms=5)


def test_a_formatted_directory_is_recognized(tmp_path: Path) -> None:
    node = settings(tmp_path / "a", metadata__log__dir=str(tmp_path / "m"))
    assert len(format_now(node)) == 2
    storage = check_storage(DISK, node)
    assert storage.cluster_id == "C"
    assert set(storage.directory_ids) == {tmp_path / "a", tmp_path / "m"}
    assert len(set(storage.directory_ids.values())) == 2
    assert (tmp_path / "m" / "bootstrap.checkpoint").exists()
    assert not (tmp_path / "a" / "bootstrap.checkpoint").exists()
    text = (tmp_path / "a" / "meta.properties").read_text()
    assert "version=1\n" in text
    assert "cluster.id=C\n" in text


def test_the_first_records_are_those_of_kafka_for_what_is_answered(tmp_path: Path) -> None:
    format_now(settings(tmp_path / "a"))
    snapshot = decode_snapshot(read_file(DISK, tmp_path / "a" / "bootstrap.checkpoint"))
    levels = [record for record in snapshot.records if isinstance(record, FeatureLevelRecord)]
    assert len(levels) == len(snapshot.records)
    assert [(record.name, record.feature_level) for record in levels] == [
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("transaction.version", 2),
    ]


def test_a_standalone_node_is_the_voter_of_its_quorum(tmp_path: Path) -> None:
    node = dynamic(tmp_path / "a")
    format_now(node, options=FormatOptions(standalone=True))
    path = tmp_path / "a" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    snapshot = decode_snapshot(read_file(DISK, path))
    assert snapshot.kraft_version is not None
    assert snapshot.kraft_version.k_raft_version == 1
    assert snapshot.voters is not None
    (voter,) = snapshot.voters.voters
    meta = read_meta_properties(DISK, tmp_path / "a")
    assert meta is not None
    assert (voter.voter_id, voter.voter_directory_id) == (1, meta.directory_id)
    assert [(end.name, end.host, end.port) for end in voter.endpoints] == [("CONTROLLER", "127.0.0.1", 9093)]


def test_named_voters_give_their_directory_ids(tmp_path: Path) -> None:
    own, other = uuid_text(random_id(Random(7))), uuid_text(random_id(Random(8)))
    options = FormatOptions(initial_controllers=[f"1@h1:9093:{own}", f"2@h2:9093:{other}"])
    format_now(dynamic(tmp_path / "a"), options=options)
    meta = read_meta_properties(DISK, tmp_path / "a")
    assert meta is not None
    assert uuid_text(meta.directory_id) == own


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (FormatOptions(standalone=True, no_initial_controllers=True), "exclude"),
        (FormatOptions(), "controller.quorum.voters is not set"),
        (FormatOptions(standalone=True, release_version="9.9"), "9.9"),
        (FormatOptions(standalone=True, features={"speed": 1}), "speed"),
        (FormatOptions(standalone=True, features={"share.version": 1}), "share.version=1: must be 0"),
        (FormatOptions(standalone=True, features={"group.version": 9}), "group.version=9: must be from 0 to 1"),
        (FormatOptions(standalone=True, features={"metadata.version": 32}), "metadata.version=32"),
        (FormatOptions(standalone=True, release_version="4.4-IV2"), "at most 4.4-IV0"),
        (FormatOptions(initial_controllers=["here"]), "id@host:port:directory-id"),
        (FormatOptions(initial_controllers=["5@h:1:" + uuid_text(random_id(Random(7)))]), "not among them"),
    ],
)
def test_contradicting_format_options_are_refused(tmp_path: Path, options: FormatOptions, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        format_now(dynamic(tmp_path / "a"), options=options)
    assert not (tmp_path / "a" / "meta.properties").exists()


def test_formatting_twice_needs_the_flag(tmp_path: Path) -> None:
    node = settings(tmp_path / "a")
    format_now(node)
    before = (tmp_path / "a" / "meta.properties").read_text()
    with pytest.raises(ConfigError, match="--ignore-formatted"):
        format_now(node)
    format_now(node, options=FormatOptions(ignore_formatted=True))
    with pytest.raises(ConfigError, match="belongs to cluster C"):
        format_now(node, "D", FormatOptions(ignore_formatted=True))
    assert (tmp_path / "a" / "meta.properties").read_text() == before


def test_another_nodes_or_clusters_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    format_now(settings(tmp_path / "a"))
    with pytest.raises(ConfigError, match=r"belongs to node 1, but node\.id is 7"):
        check_storage(DISK, settings(tmp_path / "a", node__id="7"))
    format_now(settings(tmp_path / "b"), "D")
    both = resolve(zero_config({"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}), Sources({}, lambda path: ""))
    with pytest.raises(ConfigError, match="different clusters: C, D"):
        check_storage(DISK, both)


def test_a_new_directory_beside_formatted_ones_is_missing(tmp_path: Path) -> None:
    format_now(settings(tmp_path / "a"))
    both = resolve(zero_config({"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'new'}"}), Sources({}, lambda path: ""))
    assert check_storage(DISK, both).missing == [tmp_path / "new"]


def test_an_unformatted_directory_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="odradek storage format"):
        check_storage(DISK, settings(tmp_path / "a"))


def test_default_settings_are_formatted_once(tmp_path: Path) -> None:
    node = settings(tmp_path / "a")
    assert ensure_formatted(DISK, node, random=Random(3), now_ms=1)
    first = check_storage(DISK, node).cluster_id
    assert not ensure_formatted(DISK, node, random=Random(4), now_ms=1)
    assert check_storage(DISK, node).cluster_id == first
    assert len(first) == 22


@pytest.mark.parametrize("text", ["version=9\n", "version=1\nnode.id=x\ncluster.id=C\n", "version=1\nnode.id=1\n"])
def test_a_damaged_file_names_itself(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(ConfigError, match=r"meta\.properties"):
        read_meta_properties(DISK, tmp_path)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="file"):
            format_now(settings(place))


def test_drawn_ids_do_not_look_like_options() -> None:
    assert not any(uuid_text(random_id(Random(seed))).startswith("-") for seed in range(300))


def test_every_class_of_settings_is_known_to_the_node() -> None:
    assert set(config_classes()) == set(CONFIG_CLASSES)


def test_every_setting_that_is_declared_is_read() -> None:
    read = {
        node.attr
        for path in Path(odradek.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    declared = [(each.__name__, item.name) for each in CONFIG_CLASSES for item in dataclasses.fields(each)]
    assert [(name, item) for name, item in declared if item not in read] == []


@pytest.mark.parametrize("directory", ["/data", "/srv/odradek/data"])
def test_formatted_directories_survive_a_loss_of_power(directory: str) -> None:
    node = settings(Path(directory), metadata__log__dir=f"{directory}/of/metadata")
    for seed in range(30):
        disk = SimDisk(Random(seed), DiskFaults(), lambda: 0)
        format_storage(disk, node, "C", FormatOptions(), random=Random(1), now_ms=5)
        disk.lose_power()
        assert check_storage(disk, node).cluster_id == "C"


def test_a_directory_that_was_added_survives_a_loss_of_power() -> None:
    before = settings(Path("/data"))
    after = settings(Path("/data"), log__dirs="/data,/more/data")
    for seed in range(30):
        disk = SimDisk(Random(seed), DiskFaults(), lambda: 0)
        format_storage(disk, before, "C", FormatOptions(), random=Random(1), now_ms=5)
        given = format_missing(disk, after, check_storage(disk, after), random=Random(2))
        disk.lose_power()
        assert check_storage(disk, after).directory_ids == given.directory_ids


def test_a_half_formatted_directory_starts_once_the_disk_works() -> None:
    node = settings(Path("/data"), metadata__log__dir="/metadata")
    half = 0
    for seed in range(60):
        disk = SimDisk(Random(seed), DiskFaults(sync_error=0.15), lambda: 0)
        try:
            format_storage(disk, node, "C", FormatOptions(), random=Random(1), now_ms=5)
        except ConfigError:
            found = [read_meta_properties(disk, Path(each)) is not None for each in ("/metadata", "/data")]
            half += any(found)
        disk.faults = DiskFaults()
        ensure_formatted(disk, node, random=Random(2), now_ms=6, cluster_id="C")
        format_missing(disk, node, check_storage(disk, node), random=Random(3))
        assert not check_storage(disk, node).missing
    assert half


@pytest.mark.parametrize("iterations", ["1", "4095", "16385", "1000000000", "0000040969999999", "-4096", "many", ""])
def test_a_first_user_has_not_any_number_of_iterations(iterations: str) -> None:
    with pytest.raises(ConfigError, match="iterations must be from 4096 to 16384"):
        first_users([f"SCRAM-SHA-256=[name=a,password=b,iterations={iterations}]"], Random(1))
