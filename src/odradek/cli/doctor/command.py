"""`odradek doctor`: lists problems of a machine, a configuration file or a running cluster, most severe first."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.admin.finding import Report, Severity, counted
from odradek.cli.connect import CommandConfigOption, Target, administer, is_named, target, tls_of
from odradek.cli.errors import FAILED
from odradek.cli.output import JsonOption, print_json, say, say_on_stderr

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

app = typer.Typer(add_completion=False)

APART_S = 5.0


@app.command()
def doctor(
    context: typer.Context,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            help="Look at the running cluster of these brokers.",
            envvar="ODRADEK_BOOTSTRAP_SERVER",
            metavar="HOST:PORT",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Look at a node's properties file, and at its directories here."),
    ] = None,
    directory: Annotated[
        list[Path] | None,
        typer.Option("--directory", "-d", help="Look at a directory's disk; may be given often."),
    ] = None,
    watch: Annotated[
        float, typer.Option("--watch", help="Seconds between two looks at how far groups are.", min=0.1, max=3600)
    ] = APART_S,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List problems and fixes, worst first: of this machine, a configuration (-c), a running cluster (-b).

    Without -b it looks at this machine: its limits, swap, and the disks of --directory, of the configuration, or of
    the directory where you are. ODRADEK_BOOTSTRAP_SERVER counts where neither -c nor -d is given. Ends with 1 where
    something is bad.
    """
    report = Report()
    directories = list(directory or [])
    if (config is not None or directories) and not is_named(context, "bootstrap_server"):
        bootstrap_server = None
    if config is not None:
        directories += _inspect_configuration(config, report)
    if bootstrap_server is None or directories:
        _inspect_machine(directories or [Path.cwd()], report)
    if bootstrap_server is not None:
        _inspect_cluster(target(bootstrap_server, command_config), watch, report)
    _show(report, as_json=as_json)
    if report.is_bad:
        raise typer.Exit(FAILED)


def _inspect_configuration(config: Path, report: Report) -> list[Path]:
    """Check a properties file; returns its log directories. Raises ConfigError if it is invalid."""
    from odradek.cli.doctor.configuration import check_settings
    from odradek.common.real_io import RealDisk
    from odradek.server.startup.honoured_settings import honoured_settings
    from odradek.settings.node import load_node_settings

    disk = RealDisk()
    try:
        settings = load_node_settings(disk, config, environment=os.environ, honoured=honoured_settings())
    finally:
        disk.close()
    report.add(check_settings(settings, datetime.now(UTC)))
    return [Path(each) for each in dict.fromkeys([*settings.log_dirs, settings.metadata_log_dir])]


def _inspect_machine(directories: list[Path], report: Report) -> None:
    from odradek.cli.doctor.machine import check_machine, inspect_machine

    report.add(check_machine(inspect_machine(directories)))


def _inspect_cluster(where: Target, watch_s: float, report: Report) -> None:
    from odradek.admin.cluster_checks import check_cluster
    from odradek.admin.cluster_facts import ClusterFacts, Inspection
    from odradek.server.startup.ignored_settings import has_effect

    async def work(cluster: Cluster) -> ClusterFacts:
        return await Inspection(cluster, report, watch_s, tls_of(where)).run()

    facts = administer(where, work)
    report.add(check_cluster(facts, now=datetime.now(UTC), apart_s=watch_s, honoured=has_effect))


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(report.as_json())
        return
    for each in report.worst_first:
        say(f"{each.severity.name:<8} {each.line}")
        say(f"{'':<9}why: {each.why}")
        say(f"{'':<9}fix: {each.fix}")
    for what, why in report.skipped.items():
        say_on_stderr(f"not looked at: {what}: {why}")
    counts = [sum(each.severity is severity for each in report.findings) for severity in Severity]
    bad, warnings, notes = counts
    say(f"{bad} bad, {counted(warnings, 'warning', 'warnings')}, {counted(notes, 'note', 'notes')}")
