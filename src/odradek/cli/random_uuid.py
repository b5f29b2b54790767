"""`odradek random-uuid`: an id for a new cluster."""

from __future__ import annotations

from random import SystemRandom

import typer

from odradek.raft.quorum_state import uuid_text
from odradek.server.format import random_id

app = typer.Typer(add_completion=False)


@app.command()
def random_uuid() -> None:
    """Print an id for a new cluster."""
    typer.echo(uuid_text(random_id(SystemRandom())))
