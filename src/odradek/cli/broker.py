"""`odradek broker`: run one node in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odradek.cli.node import NodeArguments, run_node
from odradek.common.numbers import MAX_PORT

app = typer.Typer(add_completion=False)


@app.command()
def broker(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Properties file; without one, a node on 127.0.0.1:9092.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--override", help="key=value above the file; may be given often.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help="Of a node without a file; its controller has the next.", min=1, max=MAX_PORT),
    ] = None,
) -> None:
    """Run a node until it is stopped.

    Without a file it is broker and controller in one, formatted at its first start, with its data in ./odradek-data.
    """
    raise typer.Exit(run_node(NodeArguments(config, override or [], port)))
