"""Shared by commands that connect to a cluster: options, client settings, and running a coroutine.

Administration goes through `odradek.client`. Its settings come from a properties file as Kafka's tools take one; of
those only what matters to a client that administers is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from odradek.cli.errors import BAD_CONFIG, CliError
from odradek.common.numbers import INT32_MAX, parse_natural

if TYPE_CHECKING:
    import ssl

    from odradek.client.cluster import Cluster

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
# Kafka's default.api.timeout.ms is a minute; a person at a terminal has given up by then.
DEFAULT_TIMEOUT_MS = 30_000
# The settings that a listener may need that closes connections of this protocol.
_LOGIN = "with sasl.mechanism and sasl.jaas.config"
_HINTS = {
    "PLAINTEXT": "does that listener expect TLS? Set security.protocol=SSL in --command-config; "
    f"or SASL? Then SASL_SSL or SASL_PLAINTEXT, {_LOGIN}",
    "SSL": f"does that listener expect SASL? Set security.protocol=SASL_SSL in --command-config, {_LOGIN}",
    "SASL_PLAINTEXT": "does that listener expect TLS? Set security.protocol=SASL_SSL in --command-config",
}

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        help="host:port[,host:port]… of brokers.",
        envvar="ODRADEK_BOOTSTRAP_SERVER",
        metavar="HOST:PORT",
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option("--command-config", help="Properties file with settings of the client.", metavar="FILE"),
]


CommandPropertyOption = Annotated[
    list[str] | None,
    typer.Option("--command-property", help="key=value for the client; may be given often."),
]


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster, and the client's settings."""

    bootstrap: str
    properties: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def timeout_ms(self) -> int:
        """The timeout of one operation, including retries."""
        text = self.properties.get("default.api.timeout.ms") or self.properties.get("request.timeout.ms")
        if text is None:
            return DEFAULT_TIMEOUT_MS
        timeout_ms = parse_natural(text, INT32_MAX)
        if not timeout_ms:
            raise CliError(f"--command-config: a timeout of {text!r} is not a number of milliseconds", code=BAD_CONFIG)
        return timeout_ms

    @property
    def security_protocol(self) -> str:
        return self.properties.get("security.protocol", "PLAINTEXT").upper()


def is_named(context: typer.Context, parameter: str) -> bool:
    """Whether a parameter is on the command line, not in the environment alone."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def target(bootstrap: str, command_config: Path | None) -> Target:
    """The cluster of the options; without --bootstrap-server, `bootstrap.servers` of the file.

    Raises:
        CliError: a file that cannot be read.
    """
    properties = read_properties(command_config) if command_config is not None else {}
    if bootstrap == DEFAULT_BOOTSTRAP:
        bootstrap = properties.get("bootstrap.servers", bootstrap)
    return Target(bootstrap, properties)


def read_properties(path: Path) -> dict[str, str]:
    """A properties file. Raises CliError."""
    from odradek.settings.properties import parse_properties

    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}; name a file that can be read", code=BAD_CONFIG) from None
    except ValueError as error:
        raise CliError(f"{path}: {error}; write it as key=value lines", code=BAD_CONFIG) from None


def administer(where: Target, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Run `work` with a connected cluster and return its result.

    Raises:
        CliError: no broker answers, with what to check; else what `work` raises.
    """
    import asyncio

    from odradek.client.connection import RequestTimeoutError, UnreachableError, UnsupportedRequestError

    connect = cluster_at(where)

    async def connected() -> T:
        async with connect() as cluster:
            return await work(cluster)

    try:
        return asyncio.run(connected())
    except (UnreachableError, RequestTimeoutError) as error:
        raise unreachable(where, str(error)) from None
    except UnsupportedRequestError as error:
        raise CliError(f"{error}; this command needs a newer broker") from None


def cluster_at(where: Target) -> Callable[[], Cluster]:
    """Return a function that creates the client on its event loop. Raises CliError for invalid settings."""
    from odradek.client.cluster import Cluster, parse_bootstrap
    from odradek.client.sasl import SaslSettingError
    from odradek.common.real_io import RealClock, RealNetwork
    from odradek.security.client.settings import credentials

    try:
        addresses = parse_bootstrap(where.bootstrap)
    except ValueError as error:
        raise CliError(f"--bootstrap-server: {error}; give host:port[,host:port]…", code=BAD_CONFIG) from None
    tls = tls_of(where)
    try:
        sasl = credentials(where.properties)
    except SaslSettingError as error:
        raise CliError(f"--command-config: {error}", code=BAD_CONFIG) from None

    client_id = where.properties.get("client.id", "odradek-cli")
    return lambda: Cluster(
        RealNetwork(), RealClock(), addresses, client_id=client_id, timeout_ms=where.timeout_ms, tls=tls, sasl=sasl
    )


def unreachable(where: Target, reason: str) -> CliError:
    """The error for a cluster that does not respond."""
    from odradek.cli.errors import UNREACHABLE

    hint = "is a broker running there? Start one with `odradek broker` or set --bootstrap-server"
    if "closed the connection" in reason:
        hint = _HINTS.get(where.security_protocol, hint)
    elif "ended TLS" in reason:
        hint = "is ssl.keystore.location in --command-config a certificate that the listener trusts?"
    return CliError(f"{reason}; {hint}", code=UNREACHABLE)


def tls_of(where: Target) -> ssl.SSLContext | None:
    """The client's TLS; None if the security protocol has none. Raises CliError."""
    from odradek.admin.connecting import PROTOCOLS

    protocol = where.security_protocol
    if protocol not in PROTOCOLS:
        raise CliError(
            f"--command-config: security.protocol={protocol} is unknown; it is one of {', '.join(PROTOCOLS)}",
            code=BAD_CONFIG,
        )
    if not protocol.endswith("SSL"):
        return None
    from odradek.security.client.settings import tls_context
    from odradek.security.tls.config import TlsSettingError

    try:
        return tls_context(where.properties)
    except TlsSettingError as error:
        raise CliError(f"TLS: {error}", code=BAD_CONFIG) from None


def parse_assignments(items: list[str] | None, option: str) -> dict[str, str]:
    """`key=value` of a repeated option; raises CliError."""
    found = {}
    for item in items or []:
        key, sign, value = item.partition("=")
        if not sign or not key.strip():
            raise CliError(f"{option} {item}: must be key=value", code=BAD_CONFIG)
        found[key.strip()] = value
    return found
