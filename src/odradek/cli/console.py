"""`odradek console`: a web console for Kafka clusters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.connect import CommandConfigOption, is_named, target
from odradek.cli.errors import USAGE, CliError
from odradek.cli.output import say, say_on_stderr
from odradek.common.numbers import MAX_PORT, parse_natural

if TYPE_CHECKING:
    from odradek.console.clusters import ClusterConfig

app = typer.Typer(add_completion=False, invoke_without_command=True)

DEFAULT_LISTEN = "127.0.0.1:8080"


@app.callback()
def console(
    context: typer.Context,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            help="Show the cluster of these brokers.",
            envvar="ODRADEK_BOOTSTRAP_SERVER",
            metavar="HOST:PORT",
        ),
    ] = None,
    command_config: CommandConfigOption = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Show the clusters of this TOML file (docs/console.md).")
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="With -b: allow changes to every user.")
    ] = False,
    listen: Annotated[
        str, typer.Option("--listen", help="Where browsers connect; port 0: a free one.", metavar="HOST:PORT")
    ] = DEFAULT_LISTEN,
    hostname: Annotated[
        list[str] | None,
        typer.Option("--hostname", help="A name by which browsers reach it; may be given often."),
    ] = None,
    users: Annotated[
        Path | None, typer.Option("--users", help="The users: a file of `odradek console password`.")
    ] = None,
    oidc: Annotated[
        Path | None, typer.Option("--oidc", help="Users log in at the issuer that this TOML file names.")
    ] = None,
    tls_certificate: Annotated[Path | None, typer.Option("--tls-certificate", help="PEM file, for HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="PEM file of its key.")] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            help="Believe X-Forwarded-For and X-Forwarded-Proto of this proxy; may be given often.",
            metavar="ADDRESS",
        ),
    ] = None,
    every: Annotated[
        float, typer.Option("--every", help="Seconds between two looks at a cluster.", min=0.2, max=3600)
    ] = 5.0,
) -> None:
    """Show clusters in a browser: what is wrong, topics, records, groups. Read-only, and for this machine alone.

    Others are let in with a login (--users, --oidc) and, where names are used, --hostname.
    """
    if context.invoked_subcommand is not None:
        return
    from odradek.console.auth import Users
    from odradek.console.oidc import read_oidc
    from odradek.console.serve import Serving, check, serve, warning

    if config is not None and not is_named(context, "bootstrap_server"):
        bootstrap_server = None  # ODRADEK_BOOTSTRAP_SERVER is for commands that name no cluster
    clusters = _clusters(bootstrap_server, command_config, config, allow_changes=allow_changes)
    issuer = read_oidc(oidc) if oidc is not None else None
    names, proxies = tuple(hostname or ()), tuple(trusted_proxy or ())
    serving = Serving(*_address(listen), names, tls_certificate, tls_key, every, proxies, issuer)
    known = Users(users) if users is not None else None
    check(serving, known)
    if weak := warning(serving):
        say_on_stderr(weak)
    serve(clusters, serving, known, say)


def _clusters(
    bootstrap_server: str | None, command_config: Path | None, config: Path | None, *, allow_changes: bool
) -> dict[str, ClusterConfig]:
    from odradek.console.clusters import read_clusters, single_cluster

    if (config is None) == (bootstrap_server is None):
        raise CliError("say which clusters: -b HOST:PORT for one, or --config FILE for several", code=USAGE)
    if config is not None and (allow_changes or command_config is not None):
        raise CliError("--config names for each cluster who may change it; leave the options of -b out", code=USAGE)
    if config is not None:
        return read_clusters(config)
    where = target(bootstrap_server or "", command_config)
    return single_cluster(where.bootstrap, where.properties, may_change=allow_changes)


def _address(listen: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port`; port 0 uses a free one. Raises CliError."""
    host, _, digits = listen.rpartition(":")
    port = parse_natural(digits, MAX_PORT)
    if not host or port is None:
        raise CliError(f"--listen {listen}: must be as {DEFAULT_LISTEN}", code=USAGE)
    return host.removeprefix("[").removesuffix("]"), port


@app.command("password")
def password(
    file: Annotated[Path, typer.Argument(help="The file of users; it is made where it is not there.")],
    name: Annotated[str, typer.Argument(help="The name of the user.")],
) -> None:
    """Set a user's password in a file for --users; reads it from the terminal or from standard input."""
    import getpass

    from odradek.console.auth import rewrite, with_user

    given = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    text = with_user(text, name, given)
    rewrite(file, text)
    say_on_stderr(f"{name} may log in with this password; a console that runs sees it at once")
