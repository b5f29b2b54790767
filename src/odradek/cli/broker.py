"""`odradek broker`: run one node in the foreground."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import SystemRandom
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def broker(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Properties file; without one, a node on 127.0.0.1:9092.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--override", help="key=value above the file; may be given often.")
    ] = None,
) -> None:
    """Run a node until it is told to stop.

    Without a file it is broker and controller in one, formatted at its first start, with its data in ./odradek-data.
    """
    from odradek.common.node_settings import load_node_settings
    from odradek.common.real_io import RealDisk
    from odradek.server.format import ensure_formatted
    from odradek.server.options import honoured_settings
    from odradek.server.process import run

    disk = RealDisk()
    settings = load_node_settings(disk, config, override or [], environment=os.environ, honoured=honoured_settings())
    if config is None:
        ensure_formatted(disk, settings, random=SystemRandom(), now_ms=time.time_ns() // 1_000_000)
    disk.close()
    raise typer.Exit(run(settings))
