"""Computes the brokers of a machine, with their ports, disks and settings. Pure: it reads nothing.

All brokers share one configuration; ids, ports and directories are computed from the number of a broker. So the same
command always has the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek.common.errors import ConfigError
from odradek.common.numbers import MAX_PORT
from odradek.settings.listeners import WILDCARDS, parse_address

LOCALHOST = "127.0.0.1"
BROKER_PORT = 9092
# Above the brokers' ports, so that both kinds can be counted on from a first one.
CONTROLLER_PORT_DISTANCE = 10_000
PAGES = f"{LOCALHOST}:9400"
MAX_COPIES = 3
# The ids of a machine's brokers are 1, 2, 3…, those of the next machine 101, 102, 103…: each has room to grow.
IDS_OF_A_HOST = 100
METRICS_LISTENER = "odradek.metrics.listener"
STATIC_VOTERS = "controller.quorum.voters"
BOOTSTRAP_CONTROLLERS = "controller.quorum.bootstrap.servers"
AUTO_JOIN = "controller.quorum.auto.join.enable"
# Settings that are computed for each broker, so that the shared configuration must not have them.
_DERIVED = ("node.id", "broker.id", "process.roles", "log.dirs", "log.dir", "metadata.log.dir")

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker.

    Attributes:
        listeners: its listeners by name, including those of its controller.
        advertised: its address for clients.
        pages: its address for probes and scrapes.
        directories: its log directories; the first has its metadata and its properties file.
        votes: whether it is a controller too.
    """

    broker_id: int
    listeners: Mapping[str, str]
    advertised: str
    pages: Address
    directories: Sequence[Path]
    votes: bool
    properties: Mapping[str, str] = field(repr=False)

    @property
    def config(self) -> Path:
        """Its properties file, as `odradek broker --config` takes it."""
        return self.directories[0].with_name(f"{self.directories[0].name}.properties")


@dataclass(frozen=True, slots=True)
class HostPlan:
    """All brokers of a machine, in the order of their ids.

    Attributes:
        pages: the address at which the host serves the pages of all of them.
    """

    brokers: Sequence[BrokerPlan]
    pages: Address

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return ",".join(broker.advertised for broker in self.brokers)


def share_out(disks: Sequence[Path], kept: Mapping[int, Sequence[Path]], ids: Iterable[int]) -> dict[int, list[Path]]:
    """The directories of each broker: all disks are used, and as few brokers as can be lose one when a disk fails.

    Args:
        kept: the directories of brokers that exist: they keep them.
        ids: of all brokers, in order. A new one takes a disk that none uses, else one that the fewest use; disks that
            are left over go round.
    """
    ids = list(ids)
    found = {broker: list(kept.get(broker, ())) for broker in ids}
    users = Counter({disk: sum(disk in (each.parent for each in dirs) for dirs in found.values()) for disk in disks})

    def assign(broker: int, disk: Path) -> None:
        found[broker].append(disk / f"broker-{broker}")
        users[disk] += 1

    for broker in ids:
        if not found[broker]:
            assign(broker, min(disks, key=lambda disk: users[disk]))
    for disk in disks:
        if not users[disk]:
            assign(min(ids, key=lambda each: len(found[each])), disk)
    return found


def without_a_file(cores: int, port: int) -> dict[str, str]:
    """The configuration without a file: only this machine can connect."""
    copies = min(cores, MAX_COPIES)
    return {
        "listeners": f"PLAINTEXT://{LOCALHOST}:{port},CONTROLLER://{LOCALHOST}:{port + CONTROLLER_PORT_DISTANCE}",
        "controller.listener.names": "CONTROLLER",
        "default.replication.factor": str(copies),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(max(1, copies - 1)),
    }


def plan_host(
    shared: Mapping[str, str],
    directories: Mapping[int, Sequence[Path]],
    *,
    first_id: int,
    votes: int,
    controllers: Sequence[str] = (),
) -> HostPlan:
    """Compute the settings of each broker.

    Args:
        shared: the common configuration. Its ports are those of the first broker; the next broker has the next ones.
        directories: of each broker, by id.
        first_id: the id to which the ports of the configuration belong.
        votes: the number of controllers; the first brokers are controllers too.
        controllers: addresses of controllers on other machines.
    Raises:
        ConfigError: the configuration has a setting that is computed, or two brokers would share a port.
    """
    shared = {"controller.listener.names": "CONTROLLER", **shared}
    template = _read_template(shared)
    static_ids = _voter_ids(shared.get(STATIC_VOTERS, ""))
    voters = static_ids & directories.keys() if static_ids else {*list(directories)[:votes]}
    own = [_text(*_dialled(template.controller, broker - first_id)) for broker in sorted(voters)]
    if not static_ids and BOOTSTRAP_CONTROLLERS not in shared:
        shared[BOOTSTRAP_CONTROLLERS] = ",".join(dict.fromkeys([*own, *controllers]))
    brokers = [
        _broker(shared, template, each, each - first_id, dirs, each in voters) for each, dirs in directories.items()
    ]
    _check_ports(brokers, template.pages)
    return HostPlan(brokers, template.pages)


@dataclass(frozen=True, slots=True)
class _Template:
    """The listeners of the first broker in the shared configuration."""

    listeners: Mapping[str, Address]
    advertised: Mapping[str, Address]
    controller_names: set[str]
    pages: Address

    @property
    def controller(self) -> Address:
        """The address of the controller's listener."""
        shown = {**self.listeners, **self.advertised}
        return next(address for name, address in shown.items() if name in self.controller_names)

    @property
    def for_clients(self) -> Address:
        """The address of the first broker for clients: its first listener that is not its controller's."""
        shown = {**self.listeners, **self.advertised}
        return next(address for name, address in shown.items() if name not in self.controller_names)


def _read_template(shared: Mapping[str, str]) -> _Template:
    """Raises ConfigError with every problem."""
    problems = [f"{key}: follows from the place of a broker; leave it out" for key in _DERIVED if key in shared]
    names = _names(shared["controller.listener.names"])
    pages, wrong = _address(METRICS_LISTENER, shared.get(METRICS_LISTENER, PAGES))
    problems += wrong
    listeners, wrong = _listeners("listeners", shared.get("listeners", ""))
    problems += wrong
    advertised, wrong = _listeners("advertised.listeners", shared.get("advertised.listeners", ""))
    problems += wrong
    if not listeners.keys() & names:
        problems.append(f"listeners: has none for a controller ({', '.join(sorted(names))})")
    if not listeners.keys() - names:
        problems.append("listeners: has none for clients")
    if problems:
        raise ConfigError(problems)
    return _Template(listeners, advertised, names, pages)


def _broker(
    shared: Mapping[str, str], template: _Template, broker: int, place: int, dirs: Sequence[Path], is_voter: bool
) -> BrokerPlan:
    left_out = set() if is_voter else template.controller_names
    listeners = _shifted(template.listeners, place, left_out)
    pages = (template.pages[0], template.pages[1] + place + 1)
    properties = {
        **shared,
        "node.id": str(broker),
        "process.roles": "broker,controller" if is_voter else "broker",
        "listeners": _joined(listeners),
        "log.dirs": ",".join(map(str, dirs)),
        METRICS_LISTENER: _text(*pages),
    }
    if template.advertised:
        properties["advertised.listeners"] = _joined(_shifted(template.advertised, place, left_out))
    if is_voter and STATIC_VOTERS not in shared:
        properties.setdefault(AUTO_JOIN, "true")
    shown = {name: _text(*address) for name, address in listeners.items()}
    first = template.for_clients
    return BrokerPlan(broker, shown, _text(*_dialled(first, place)), pages, list(dirs), is_voter, properties)


def votes_here(
    mine: tuple[str | None, str | None],
    voters: Sequence[tuple[str | None, str | None]],
    brokers: Sequence[tuple[str | None, str | None]],
) -> bool:
    """Whether a joining machine should have a voter: up to three machines have one, racks without one first.

    Args:
        mine: rack and machine of the joining brokers; None if unknown.
        voters, brokers: rack and machine of each voter and each broker.
    """
    rack, machine = mine
    if len(voters) >= MAX_COPIES or (machine is not None and machine in (host for _, host in voters)):
        return False
    voting_racks = {each for each, _ in voters}
    others = {each for each, _ in brokers if each} - voting_racks
    return rack not in voting_racks or rack is None or not others


def next_first_id(ids: Iterable[int]) -> int:
    """The first id of a machine that joins a cluster of brokers with these ids."""
    highest = max(ids, default=0)
    return highest // IDS_OF_A_HOST * IDS_OF_A_HOST + IDS_OF_A_HOST + 1 if highest else 1


def _voter_ids(text: str) -> set[int]:
    entries = [entry.strip().partition("@")[0] for entry in text.split(",") if entry.strip()]
    if not all(entry.isdecimal() for entry in entries):
        raise ConfigError([f"{STATIC_VOTERS}: each must be id@host:port"])
    return set(map(int, entries))


def _names(text: str) -> set[str]:
    return {name.strip().upper() for name in text.split(",")} - {""}


def _listeners(key: str, text: str) -> tuple[dict[str, Address], list[str]]:
    found, problems = {}, []
    for entry in filter(None, map(str.strip, text.split(","))):
        name, separator, rest = entry.partition("://")
        address, wrong = _address(key, rest)
        problems += wrong if separator else [f"{key}: {entry!r} must be NAME://host:port"]
        found[name.upper()] = address
    return found, problems


def _address(key: str, text: str) -> tuple[Address, list[str]]:
    """An address with a port from which others can be counted on."""
    found = parse_address(text)
    if found is None or not found[1]:
        return ("", 0), [f"{key}: {text!r} must be host:port, and brokers count on from the port"]
    return found, []


def _shifted(listeners: Mapping[str, Address], place: int, left_out: set[str]) -> dict[str, Address]:
    return {name: (host, port + place) for name, (host, port) in listeners.items() if name not in left_out}


def _dialled(address: Address, place: int) -> Address:
    host, port = address
    return ("localhost" if host in WILDCARDS else host), port + place


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _joined(listeners: Mapping[str, Address]) -> str:
    return ",".join(f"{name}://{_text(*address)}" for name, address in listeners.items())


def _check_ports(brokers: Sequence[BrokerPlan], pages: Address) -> None:
    users: dict[int, list[str]] = {pages[1]: ["the host's pages"]}
    for broker in brokers:
        for name, address in broker.listeners.items():
            users.setdefault(int(address.rpartition(":")[2]), []).append(f"{name} of broker {broker.broker_id}")
        users.setdefault(broker.pages[1], []).append(f"pages of broker {broker.broker_id}")
    problems = [f"port {port}: {' and '.join(who)} would share it" for port, who in users.items() if len(who) > 1]
    problems += [f"port {port}: there is none beyond {MAX_PORT}" for port in users if port > MAX_PORT]
    if problems:
        raise ConfigError([*problems[:3], "choose ports in the shared configuration that are further apart"])
