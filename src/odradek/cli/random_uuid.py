"""`odradek random-uuid`: an id for a new cluster."""

from __future__ import annotations

from random import SystemRandom

import typer

app = typer.Typer(add_completion=False)


@app.command()
def random_uuid() -> None:
    """Print an id for a new cluster."""
    from odradek.raft.quorum_state import uuid_text
    from odradek.server.format import random_id

    typer.echo(uuid_text(random_id(SystemRandom())))
