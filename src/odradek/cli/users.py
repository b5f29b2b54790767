"""`odradek users`: manage users of SCRAM.

Passwords are read from a terminal, a file or a pipe: any user of the machine can read a command line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.administration import Administration
from odradek.cli.errors import FAILED, NOT_FOUND, USAGE, CliError
from odradek.cli.option_groups import with_option_groups
from odradek.cli.output import print_json, print_table
from odradek.common.scram import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS, SALT_BYTES, SCRAM_MECHANISMS

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.common.scram import ScramMechanism

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, add and remove users that log in by SCRAM.")

NameArgument = Annotated[str, typer.Argument(help="The user's name, without User:.", metavar="NAME")]
MechanismOption = Annotated[
    list[str] | None,
    typer.Option("--mechanism", help="SCRAM-SHA-256 or SCRAM-SHA-512; both where none is given."),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--password-file", help="A file with the password in its first line; - is standard input."),
]
IterationsOption = Annotated[
    int,
    typer.Option("--iterations", help="Of the hash, for each login.", min=MIN_ITERATIONS, max=MAX_ITERATIONS),
]


@app.command("list")
@with_option_groups
def list_users(
    cluster: Administration,
) -> None:
    """Show the users and their mechanisms, with the iterations of each."""
    found = _known(cluster)
    if cluster.as_json:
        print_json(found)
        return
    rows = [[name, mechanism, count] for name, own in found.items() for mechanism, count in own.items()]
    print_table(["USER", "MECHANISM", "ITERATIONS"], rows)


@app.command("add")
@with_option_groups
def add(
    name: NameArgument,
    mechanism: MechanismOption = None,
    password_file: PasswordFileOption = None,
    iterations: IterationsOption = DEFAULT_ITERATIONS,
    *,
    cluster: Administration,
) -> None:
    """Add a user; an existing one is not changed."""
    if name.startswith("User:"):
        raise CliError(f"{name}: a user's name has no User: before it; write {name.removeprefix('User:')}", code=USAGE)
    wanted = _mechanisms(mechanism)
    has = _known(cluster).get(name, {})
    if any(each.name in has for each in wanted):
        raise CliError(f"user {name} exists; change it with `odradek users password {name}`", code=FAILED)
    _set(cluster, name, wanted, password_file, iterations)
    _report(cluster, name, wanted, f"user {name} added")


@app.command("password")
@with_option_groups
def password(
    name: NameArgument,
    mechanism: MechanismOption = None,
    password_file: PasswordFileOption = None,
    iterations: IterationsOption = DEFAULT_ITERATIONS,
    *,
    cluster: Administration,
) -> None:
    """Set another password of a user; connections that are logged in stay open."""
    has = _known(cluster).get(name)
    if has is None:
        raise CliError(f"there is no user {name}; add it with `odradek users add {name}`", code=NOT_FOUND)
    wanted = _mechanisms(mechanism or [each for each in has if each in SCRAM_MECHANISMS])
    _set(cluster, name, wanted, password_file, iterations)
    _report(cluster, name, wanted, f"password of user {name} changed")


@app.command("remove")
@with_option_groups
def remove(
    name: NameArgument,
    mechanism: MechanismOption = None,
    *,
    cluster: Administration,
) -> None:
    """Remove a user, or one of its mechanisms; connections that are logged in stay open."""
    has = _known(cluster).get(name, {})
    wanted = [each for each in _mechanisms(mechanism) if each.name in has]
    if not wanted:
        raise CliError(f"there is no user {name} with this mechanism; see `odradek users list`", code=NOT_FOUND)

    async def work(connected: Cluster) -> None:
        from odradek.client import users

        await users.remove_user(connected, name, wanted)

    cluster.run(work)
    _report(cluster, name, wanted, f"user {name} removed: {', '.join(each.name for each in wanted)}")


def _report(cluster: Administration, name: str, mechanisms: list[ScramMechanism], text: str) -> None:
    cluster.report({"user": name, "mechanisms": [each.name for each in mechanisms]}, text)


def _known(cluster: Administration) -> dict[str, dict[str, int]]:
    async def work(connected: Cluster) -> dict[str, dict[str, int]]:
        from odradek.client import users

        return await users.list_users(connected)

    return cluster.run(work)


def _set(
    cluster: Administration,
    name: str,
    mechanisms: list[ScramMechanism],
    password_file: Path | None,
    iterations: int,
) -> None:
    import secrets

    given = _password(password_file)
    salts = {each: secrets.token_bytes(SALT_BYTES) for each in mechanisms}

    async def work(connected: Cluster) -> None:
        from odradek.client import users

        await users.set_password(connected, name, given, salts, iterations)

    cluster.run(work)


def _mechanisms(names: list[str] | None) -> list[ScramMechanism]:
    unknown = [name for name in names or () if name.upper() not in SCRAM_MECHANISMS]
    if unknown:
        raise CliError(f"--mechanism {unknown[0]}: is SCRAM-SHA-256 or SCRAM-SHA-512", code=USAGE)
    return [SCRAM_MECHANISMS[name.upper()] for name in names or SCRAM_MECHANISMS]


def _password(file: Path | None) -> str:
    from odradek.common.saslprep import is_prepared

    if file is None:
        if not sys.stdin.isatty():
            raise CliError(
                "no terminal to ask for the password; give --password-file FILE, or - for a pipe", code=USAGE
            )
        given = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        given = text.partition("\n")[0].removesuffix("\r")
    if not given:
        raise CliError("the password is empty; take one that is not", code=USAGE)
    if not is_prepared(given):
        raise CliError("clients would hash this password differently (RFC 4013); take letters of one form", code=USAGE)
    return given
