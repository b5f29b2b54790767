"""`odradek random-uuid`: an id for a new cluster."""

from __future__ import annotations

from random import SystemRandom

import typer

from odradek.cli.output import JsonOption, print_json

app = typer.Typer(add_completion=False)


@app.command()
def random_uuid(as_json: JsonOption = False) -> None:
    """Print an id for a new cluster."""
    from odradek.raft.quorum_state import uuid_text
    from odradek.server.startup.format import random_id

    drawn = uuid_text(random_id(SystemRandom()))
    if as_json:
        print_json({"uuid": drawn})
    else:
        typer.echo(drawn)
