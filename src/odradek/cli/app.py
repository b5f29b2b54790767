"""The root command, and the modules of all commands.

A command's module is imported when it is called, not when it is listed; its `app` is a typer application.
"""

from __future__ import annotations

import importlib
import re
import sys
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from odradek.cli import errors
from odradek.common.errors import OdradekError

# The error that typer raises for a command line that it cannot read; the class itself is not part of its interface.
UsageError: Any = typer.BadParameter.__mro__[1]

# name → (module below odradek.cli, one line of help)
COMMANDS = {
    "broker": ("broker", "Run a node in the foreground."),
    "up": ("up", "Start a cluster on this machine, and cause failures in it."),
    "host": ("host", "Run several brokers on this machine, one for each core."),
    "lab": ("lab.command", "Demonstrate Kafka's guarantees on a cluster of its own."),
    "storage": ("storage", "Format and inspect the directories of a node."),
    "topics": ("topics", "Create, list, describe, alter and delete topics."),
    "produce": ("produce", "Write records from standard input or a file."),
    "consume": ("consume", "Read records to standard output."),
    "groups": ("groups", "List, describe, delete and reset consumer groups."),
    "transactions": ("transactions", "List and describe transactions; find and end hanging ones."),
    "configs": ("configs", "Describe and alter settings of topics, brokers and groups."),
    "acls": ("acls", "List, add and remove ACLs; explain a decision."),
    "users": ("users", "List, add and remove users that log in by SCRAM."),
    "quotas": ("quotas", "List, set and remove quotas of clients."),
    "client-metrics": ("client_metrics", "Manage subscriptions for metrics that clients push."),
    "links": ("links", "Mirror topics of other clusters: manage links and mirrors."),
    "merge": ("merge", "Copy topics of several origins into one topic, each record once."),
    "capture": ("capture", "Capture changes of a PostgreSQL database as records."),
    "cluster": ("cluster", "Show id, brokers, features and quorum; unregister a broker."),
    "partitions": ("partitions", "Plan and move replicas, and elect leaders."),
    "doctor": ("doctor.command", "List problems of a machine, a configuration or a cluster."),
    "plan": ("plan.command", "Compute the number, size and settings of brokers."),
    "perf": ("perf.command", "Measure throughput and latency of any cluster."),
    "rebalance": ("rebalance.command", "Balance leaders, replicas, disks and traffic over brokers."),
    "console": ("console", "Show clusters in a browser."),
    "certs": ("certs", "Create certificates for development."),
    "drain": ("drain", "Move leaders off a broker before it stops."),
    "pipeline": ("pipeline", "Create, check, run and watch Spark pipelines over topics."),
    "dump-log": ("dump_log", "Print log segments, indexes and snapshots, ours or Kafka's."),
    "random-uuid": ("random_uuid", "Print an id for a new cluster."),
}


class LazyGroup(TyperGroup):
    """A command group that lists its commands from a table, and imports a command when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A placeholder with the command's help, for lists of commands."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            return args[0], load(args[0]), args[1:]
        if args and not args[0].startswith("-"):
            alike = get_close_matches(args[0], COMMANDS, cutoff=0.5)
            hint = f"; did you mean {' or '.join(alike)}?" if alike else ""
            raise UsageError(f"No such command '{args[0]}'{hint}", ctx=ctx)
        return super().resolve_command(ctx, args)


def load(name: str) -> Any:
    """The command of this name, imported."""
    module = importlib.import_module(f"odradek.cli.{COMMANDS[name][0]}")
    command = typer.main.get_command(module.app)
    command.name = name
    _plain(command)
    return command


def _plain(command: Any) -> None:
    """Print help as plain text: the boxes of rich truncate option names in narrow columns."""
    command.rich_markup_mode = None
    for below in (getattr(command, "commands", None) or {}).values():
        # A short help is printed whole; of the long help a list would show the beginning.
        below.short_help = (below.help or "").partition("\n\n")[0].replace("\n", " ")
        _plain(below)


app = typer.Typer(
    cls=LazyGroup,
    name="odradek",
    help="An event-streaming platform in Python: Kafka's protocol, Kafka's files, pipelines on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and end.")) -> None:
    """An event-streaming platform in Python: Kafka's protocol, Kafka's files, pipelines on Spark."""
    if version:
        from importlib.metadata import version as version_of

        typer.echo(version_of("odradek"))
        raise typer.Exit


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code. Prints one line for every error that a user can cause."""
    # With --json, errors are JSON too, also that of a command line that cannot be read.
    as_json = "--json" in arguments
    try:
        result = app(args=arguments, prog_name="odradek", standalone_mode=False)
        return result if isinstance(result, int) else errors.OK
    except SystemExit as end:
        # Both typer and rich end with 1 when the reader of our output has gone, as `head` does.
        if isinstance(end.__context__, BrokenPipeError):
            return errors.OK
        return end.code if isinstance(end.code, int) else errors.OK if end.code is None else errors.FAILED
    except BrokenPipeError:
        return errors.OK
    except (KeyboardInterrupt, typer.Abort):
        return errors.INTERRUPTED
    except UsageError as error:
        return _misused(error, as_json=as_json)
    except (OdradekError, OSError) as error:
        return errors.report(error, sys.stderr, as_json=as_json)


def _misused(error: Any, *, as_json: bool) -> int:
    """Print one line for an invalid command line; a command without arguments has printed its help."""
    command = error.ctx.command_path if error.ctx is not None else "odradek"
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return errors.USAGE
    text = " ".join(error.format_message().split()).removesuffix(".")
    # Typer's own suggestion for subcommands, in the form of ours above.
    text = re.sub(r"\. Did you mean (.*)\?$", lambda found: f"; did you mean {found[1].replace(chr(39), '')}?", text)
    if as_json:
        return errors.report(errors.CliError(f"{command}: {text}", code=errors.USAGE), sys.stderr, as_json=True)
    sys.stderr.write(f"{command}: {text}; see `{command} --help`\n")
    return errors.USAGE
