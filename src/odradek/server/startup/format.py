"""Formats the directories of a node: `meta.properties` and, for a new cluster, `bootstrap.checkpoint`, as in Kafka.

`format_storage` prepares the directories of a node, `check_storage` checks at every start whether they are its own. A
directory is formatted when it has `meta.properties`, which is therefore written last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from odradek.common.errors import ConfigError
from odradek.common.ports import Disk, make_dirs_durably, read_file, write_file_durably
from odradek.common.topic_names import METADATA_LOG
from odradek.metadata.features import (
    DEFAULT_METADATA_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SCRAM_CREDENTIALS,
    default_levels,
    metadata_level,
    metadata_name,
    offered_features,
    unmet_need,
)
from odradek.protocol.messages import voters_record
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek.raft.quorum_state import uuid_of, uuid_text
from odradek.raft.snapshot import BOOTSTRAP_FILE, SnapshotId, encode_snapshot
from odradek.server.startup.first_users import first_users
from odradek.settings.broker import BrokerSettings
from odradek.settings.listeners import WILDCARDS
from odradek.settings.properties import format_properties, parse_properties

META_FILE = "meta.properties"
_FORMAT_HINT = "odradek storage format -t $(odradek random-uuid) -c FILE"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a directory, version 1 of the file (KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: UUID

    def encode(self) -> bytes:
        values = {
            "node.id": str(self.node_id),
            "directory.id": uuid_text(self.directory_id),
            "version": "1",
            "cluster.id": self.cluster_id,
        }
        return format_properties(values).encode()

    def __str__(self) -> str:
        directory = uuid_text(self.directory_id)
        return f"cluster.id={self.cluster_id}, directory.id={directory}, node.id={self.node_id}, version=1"


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The arguments of `storage format`.

    Attributes:
        features: levels that differ from those of the release.
        standalone: this node is the only first voter of a dynamic quorum (KIP-853).
        initial_controllers: the first voters, as id@host:port:directory.
        no_initial_controllers: a quorum exists or is formatted elsewhere.
        scram_users: as `first_users` reads them.
    """

    release_version: str = ""
    features: Mapping[str, int] = field(default_factory=dict)
    ignore_formatted: bool = False
    standalone: bool = False
    initial_controllers: Sequence[str] = ()
    no_initial_controllers: bool = False
    scram_users: Sequence[str] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Storage:
    """The checked directories of a node; `missing` are not formatted."""

    cluster_id: str
    directory_ids: Mapping[Path, UUID]
    missing: Sequence[Path] = ()


def format_missing(disk: Disk, settings: BrokerSettings, storage: Storage, *, random: Random) -> Storage:
    """Format directories that were added to a formatted node; blocks.

    Raises:
        ConfigError: the metadata directory is empty, so the node's metadata is elsewhere or lost; or a directory cannot
            be written.
    """
    ids = dict(storage.directory_ids)
    for directory in storage.missing:
        if directory == Path(settings.metadata_log_dir):
            raise ConfigError([f"{directory}: the metadata directory has no {META_FILE}, others have; restore it"])
        ids[directory] = random_id(random)
        try:
            make_dirs_durably(disk, directory)
            meta = MetaProperties(storage.cluster_id, settings.node_id, ids[directory])
            write_file_durably(disk, directory / META_FILE, meta.encode())
        except OSError as error:
            raise ConfigError([f"{directory}: cannot be formatted: {error.strerror or error}"]) from None
    return Storage(storage.cluster_id, ids)


def random_id(random: Random) -> UUID:
    """An id as Kafka draws them: none of the reserved ones, and no text form that looks like an option."""
    while True:
        drawn = UUID(int=random.getrandbits(128), version=4)
        if drawn.int > 1 and not uuid_text(drawn).startswith("-"):
            return drawn


def storage_directories(settings: BrokerSettings) -> list[Path]:
    """All directories of a node: the log directories, and the metadata directory if it is another one."""
    names = dict.fromkeys([*settings.log_dirs, settings.metadata_log_dir])
    return [Path(name) for name in names]


def read_meta_properties(disk: Disk, directory: Path) -> MetaProperties | None:
    """The content of `meta.properties`; None if the directory is not formatted.

    Raises:
        ConfigError: the file is unreadable, or of a version or form that this release does not know.
    """
    path = directory / META_FILE
    try:
        if not disk.exists(path):
            return None
        values = parse_properties(read_file(disk, path).decode("latin-1"))
    except (OSError, ValueError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from None
    if values.get("version") not in ("0", "1"):
        raise ConfigError([f"{path}: version {values.get('version', '(none)')} is not known here; known are 0 and 1"])
    node = values.get("node.id", values.get("broker.id", ""))
    try:
        directory_id = uuid_of(values["directory.id"]) if "directory.id" in values else UUID(int=0)
        return MetaProperties(values["cluster.id"], int(node), directory_id)
    except (KeyError, ValueError) as error:
        raise ConfigError([f"{path}: damaged: {error}"]) from None


def check_storage(disk: Disk, settings: BrokerSettings) -> Storage:
    """Check that the directories belong to this node, and to one cluster.

    Raises:
        ConfigError: one line for each directory of another node or cluster; or none is formatted.
    """
    found, missing, problems = {}, [], []
    for directory in storage_directories(settings):
        meta = read_meta_properties(disk, directory)
        if meta is None:
            missing.append(directory)
            continue
        found[directory] = meta
        if meta.node_id != settings.node_id:
            problems.append(
                f"{directory} belongs to node {meta.node_id}, but node.id is {settings.node_id}: "
                f"correct node.id or log.dirs ({META_FILE} says whose it is)"
            )
    clusters = sorted({meta.cluster_id for meta in found.values()})
    if len(clusters) > 1:
        problems.append(f"the log directories belong to different clusters: {', '.join(clusters)}")
    if not found:
        problems.append(f"{', '.join(map(str, missing))}: not formatted; run `{_FORMAT_HINT}` first")
    if problems:
        raise ConfigError(problems)
    ids = {directory: meta.directory_id for directory, meta in found.items()}
    return Storage(clusters[0], ids, missing)


def format_storage(
    disk: Disk,
    settings: BrokerSettings,
    cluster_id: str,
    options: FormatOptions,
    *,
    random: Random,
    now_ms: int,
) -> list[str]:
    """Format the directories of a node. Blocks; existing files stay.

    Returns:
        a line to print for each directory.
    Raises:
        ConfigError: formatted already, or options that do not go together.
    Durability: everything written is durable, names included, before a directory counts as formatted.
    """
    levels = _levels(options)
    users = first_users(options.scram_users, random)
    if users and levels[METADATA_VERSION] < SCRAM_CREDENTIALS:
        raise ConfigError([f"--add-scram: needs metadata.version {metadata_name(SCRAM_CREDENTIALS)} or later"])
    voters = _initial_voters(settings, options)
    formatted = {}
    for directory in storage_directories(settings):
        meta = read_meta_properties(disk, directory)
        if meta is not None:
            formatted[directory] = meta
    _refuse_formatted(formatted, settings, cluster_id, ignore=options.ignore_formatted)
    lines = []
    # That of the metadata first: were it left when something fails on the way, the node would take them for lost,
    # and never start. The others are made up for at the next start.
    metadata_dir = Path(settings.metadata_log_dir)
    for directory in sorted(storage_directories(settings), key=lambda each: each != metadata_dir):
        if directory in formatted:
            continue
        directory_id = random_id(random)
        is_metadata = directory == metadata_dir
        if is_metadata and voters is not None:
            directory_id = _own_directory_id(settings, options, voters, directory_id)
        try:
            make_dirs_durably(disk, directory)
            # Also for an existing file: the process that created it may have died before its name was durable.
            disk.sync_dir(directory.parent)
            if is_metadata:
                _write_first_metadata(disk, directory, levels, users, voters, now_ms)
            meta = MetaProperties(cluster_id, settings.node_id, directory_id)
            write_file_durably(disk, directory / META_FILE, meta.encode())
        except OSError as error:
            raise ConfigError([f"{directory}: cannot be formatted: {error.strerror or error}"]) from None
        what = "metadata directory" if is_metadata else "data directory"
        if is_metadata and voters is not None:
            what = "dynamic metadata voter directory"
        lines.append(f"Formatting {what} {directory} with metadata.version {metadata_name(levels[METADATA_VERSION])}.")
    return lines or ["All of the log directories are already formatted."]


def ensure_formatted(
    disk: Disk, settings: BrokerSettings, *, random: Random, now_ms: int, cluster_id: str | None = None
) -> bool:
    """Format a new node that was started without configuration; returns whether it was new.

    Args:
        cluster_id: of an existing cluster; None draws one, for a new cluster.
    Raises:
        ConfigError: as `format_storage`.
    """
    if any(read_meta_properties(disk, directory) for directory in storage_directories(settings)):
        return False
    if "controller" not in settings.roles and not settings.values["controller.quorum.voters"]:
        raise ConfigError(
            [
                "process.roles=broker: a node without the controller role joins a cluster that exists, and has a"
                " configuration file; format it first: odradek storage format --cluster-id ID --config FILE"
            ]
        )
    options = FormatOptions(standalone=not settings.values["controller.quorum.voters"])
    cluster_id = uuid_text(random_id(random)) if cluster_id is None else cluster_id
    format_storage(disk, settings, cluster_id, options, random=random, now_ms=now_ms)
    return True


def _refuse_formatted(
    formatted: Mapping[Path, MetaProperties], settings: BrokerSettings, cluster_id: str, *, ignore: bool
) -> None:
    problems = []
    for directory, meta in formatted.items():
        if meta.cluster_id != cluster_id and ignore:
            problems.append(f"{directory} belongs to cluster {meta.cluster_id}, not to {cluster_id}")
        elif meta.node_id != settings.node_id:
            problems.append(f"{directory} belongs to node {meta.node_id}, but node.id is {settings.node_id}")
        elif not ignore:
            problems.append(
                f"{directory} is already formatted, for cluster {meta.cluster_id}; use --ignore-formatted to leave it "
                "and format the others"
            )
    if problems:
        raise ConfigError(problems)


def _between(lowest: int, highest: int) -> str:
    return f"from {lowest} to {highest}" if lowest < highest else f"{lowest}: nothing of more is served"


def _levels(options: FormatOptions) -> dict[str, int]:
    problems = []
    metadata_version = DEFAULT_METADATA_VERSION
    if options.release_version:
        try:
            metadata_version = metadata_level(options.release_version).level
        except ValueError as error:
            raise ConfigError([f"--release-version: {error}"]) from None
    metadata_version = options.features.get(METADATA_VERSION, metadata_version)
    offered = offered_features({})
    if metadata_version > (highest := offered[METADATA_VERSION].max_level):
        problems.append(f"--release-version: at most {metadata_name(highest)} is served")
    levels = default_levels(metadata_version)
    for name, level in options.features.items():
        if name not in offered:
            problems.append(f"--feature {name}={level}: unknown feature; known are {', '.join(offered)}")
        elif not offered[name].contains(level):
            lowest, highest = offered[name].min_level, offered[name].max_level
            problems.append(f"--feature {name}={level}: must be {_between(lowest, highest)}")
        elif need := unmet_need(name, level, levels):
            problems.append(f"--feature {name}={level}: {need}")
        else:
            levels[name] = level
    if problems:
        raise ConfigError(problems)
    return levels


def _initial_voters(settings: BrokerSettings, options: FormatOptions) -> voters_record.VotersRecord | None:
    given = [
        flag
        for flag, is_set in (
            ("--standalone", options.standalone),
            ("--initial-controllers", options.initial_controllers),
            ("--no-initial-controllers", options.no_initial_controllers),
        )
        if is_set
    ]
    static = bool(settings.values["controller.quorum.voters"])
    if len(given) > 1:
        raise ConfigError([f"{' and '.join(given)} exclude each other"])
    if static and given:
        raise ConfigError(
            [f"{given[0]}: controller.quorum.voters is set, so the quorum is static; leave the flag or the setting out"]
        )
    if not static and not given and "controller" in settings.roles:
        raise ConfigError(
            ["controller.quorum.voters is not set: say --standalone, --initial-controllers or --no-initial-controllers"]
        )
    if options.standalone:
        if "controller" not in settings.roles:
            raise ConfigError(["--standalone: process.roles of this node does not have controller"])
        return voters_record.VotersRecord(voters=[_voter(settings.node_id, _own_endpoints(settings), UUID(int=0))])
    if options.initial_controllers:
        name = min(settings.controller_listener_names)
        return voters_record.VotersRecord(voters=[_parse_voter(item, name) for item in options.initial_controllers])
    return None


def _own_endpoints(settings: BrokerSettings) -> list[voters_record.Endpoint]:
    advertised = {listener.name: listener for listener in settings.advertised}
    endpoints = []
    for listener in settings.listeners:
        if listener.name in settings.controller_listener_names:
            named = advertised.get(listener.name, listener)
            host = named.host if named.host not in WILDCARDS else "localhost"
            endpoints.append(voters_record.Endpoint(name=listener.name, host=host, port=named.port))
    return endpoints


def _parse_voter(text: str, listener_name: str) -> voters_record.Voter:
    node, at, rest = text.partition("@")
    address, _, directory = rest.rpartition(":")
    host, _, port = address.rpartition(":")
    try:
        if not at or not host:
            raise ValueError
        endpoint = voters_record.Endpoint(name=listener_name, host=host.strip("[]"), port=int(port))
        return _voter(int(node), [endpoint], uuid_of(directory))
    except ValueError:
        raise ConfigError([f"--initial-controllers: {text!r} must be id@host:port:directory-id"]) from None


def _voter(node_id: int, endpoints: list[voters_record.Endpoint], directory_id: UUID) -> voters_record.Voter:
    feature = voters_record.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    return voters_record.Voter(
        voter_id=node_id, voter_directory_id=directory_id, endpoints=endpoints, k_raft_version_feature=feature
    )


def _own_directory_id(
    settings: BrokerSettings, options: FormatOptions, voters: voters_record.VotersRecord, drawn: UUID
) -> UUID:
    """The directory id of this node in the voter set; if standalone, the voter set gets the drawn id."""
    for voter in voters.voters:
        if voter.voter_id == settings.node_id:
            if options.standalone:
                voter.voter_directory_id = drawn
            return voter.voter_directory_id
    if "controller" in settings.roles:
        raise ConfigError([f"--initial-controllers: node.id {settings.node_id} is not among them"])
    return drawn


def _write_first_metadata(
    disk: Disk,
    directory: Path,
    levels: Mapping[str, int],
    users: Sequence[UserScramCredentialRecord],
    voters: voters_record.VotersRecord | None,
    now_ms: int,
) -> None:
    """The records that a new cluster begins with, and the voters of a dynamic quorum."""
    stored = {name: level for name, level in levels.items() if name not in (METADATA_VERSION, KRAFT_VERSION) and level}
    ordered = {METADATA_VERSION: levels[METADATA_VERSION], **dict(sorted(stored.items()))}
    records: list[Any] = [FeatureLevelRecord(name=name, feature_level=level) for name, level in ordered.items()]
    records.extend(users)
    version = levels[METADATA_VERSION]
    data = encode_snapshot(records, metadata_version=version, leader_epoch=0, now_ms=now_ms)
    write_file_durably(disk, directory / BOOTSTRAP_FILE, data)
    if voters is None:
        return
    log = directory / METADATA_LOG
    make_dirs_durably(disk, log)
    first = encode_snapshot(
        [],
        metadata_version=version,
        leader_epoch=0,
        now_ms=now_ms,
        last_timestamp_ms=now_ms,
        kraft_version=1,
        voters=voters,
    )
    write_file_durably(disk, log / SnapshotId(0, 0).file_name, first)
