"""`odradek certs`: certificates for development and tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odradek.cli.errors import BAD_CONFIG, CliError
from odradek.cli.output import JsonOption, print_json

app = typer.Typer(name="certs", help="Make certificates for development.", no_args_is_help=True, rich_markup_mode=None)

# By who needs them: the comment that stands above, and the settings. Braces name the files.
_SETTINGS: dict[str, tuple[str, dict[str, str]]] = {
    "node": (
        "A node (server.properties)",
        {
            "listeners": "SSL://:9093,CONTROLLER://127.0.0.1:9094",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "{node}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "{ca}",
        },
    ),
    "librdkafka": (
        "A client of librdkafka (confluent-kafka, Go, Node)",
        {
            "security.protocol": "ssl",
            "ssl.ca.location": "{ca}",
            "ssl.certificate.location": "{client}",
            "ssl.key.location": "{client}",
        },
    ),
    "java": (
        "A Java client, Kafka's tools, and odradek (--command-config)",
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "{ca}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "{client}",
        },
    ),
    "spark": (
        "Options of Spark's source and sink",
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "{ca}",
        },
    ),
}


@app.callback()
def certs() -> None:
    """Make certificates for development."""


@app.command("dev")
def dev(
    directory: Annotated[Path, typer.Option("--directory", help="Where the files go.")] = Path("certs"),
    host: Annotated[
        list[str] | None, typer.Option("--host", help="Name or address of a node; may be given often.")
    ] = None,
    user: Annotated[str, typer.Option("--user", help="Name of the client's principal.")] = "client",
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long they are valid.")] = 365,
    as_json: JsonOption = False,
) -> None:
    """Create an authority, a node's certificate and a client's, and print the settings of nodes and clients.

    The files are for a laptop or a test. The authority's key is not kept: what is to be trusted later is made again.
    """
    paths = {name: (directory / f"{name}.pem").absolute() for name in ("ca", "node", "client")}
    existing = [path for path in paths.values() if path.exists()]
    if existing:
        raise CliError(f"{existing[0]} exists; remove it, or name another --directory", code=BAD_CONFIG)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write_certificates(paths, host or ["localhost", "127.0.0.1", "::1"], user, days)
    except OSError as error:
        raise CliError(f"{directory}: {error.strerror or error}", code=BAD_CONFIG) from None
    except ValueError as error:
        raise CliError(f"--host or --user: {error}", code=BAD_CONFIG) from None
    settings = _settings(paths)
    if as_json:
        print_json(settings)
    else:
        _print_settings(settings)


def _write_certificates(paths: dict[str, Path], hosts: list[str], user: str, days: int) -> None:
    """Raises OSError; ValueError for a host or user name that is invalid in a certificate."""
    import datetime

    from odradek.security.tls.development import make_authority

    now = datetime.datetime.now(datetime.UTC)
    valid = datetime.timedelta(days=days)
    authority = make_authority("Odradek development authority", now=now)
    paths["ca"].write_text(authority.pem)
    for name, identity in (
        ("node", authority.issue("node", hosts, now=now, valid=valid)),
        ("client", authority.issue(user, now=now, valid=valid)),
    ):
        paths[name].touch(mode=0o600)
        paths[name].write_bytes(identity.to_pem())


def _settings(paths: dict[str, Path]) -> dict[str, dict[str, str]]:
    return {
        kind: {key: value.format(**paths) for key, value in given.items()} for kind, (_, given) in _SETTINGS.items()
    }


def _print_settings(settings: dict[str, dict[str, str]]) -> None:
    typer.echo("# A client needs a certificate, its key or keystore, only where ssl.client.auth=required.")
    for kind, given in settings.items():
        typer.echo(f"\n# {_SETTINGS[kind][0]}:")
        for key, value in given.items():
            typer.echo(f"{key}={value}")
