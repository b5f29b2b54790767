"""`odradek lab`: demonstrates Kafka's guarantees on a local cluster, with expected and actual results."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.cli.errors import FAILED, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table, say, say_on_stderr

app = typer.Typer(add_completion=False)

# Small internal topics, no waiting for members, and leaders that stay where a scene has put them.
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@app.command()
def lab(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this scene; may be given often.", metavar="NAME")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start three brokers, and demonstrate what happens when producers, consumers and brokers die.

    Takes a minute or two, in a directory that is removed then; nothing else on this machine is touched. Ends with 1
    where something was not as expected.
    """
    from odradek.cli.lab.scenes import SCENES

    unknown = [name for name in only or () if name not in SCENES]
    if unknown:
        raise CliError(f"--only {unknown[0]}: the scenes are {', '.join(SCENES)}", code=USAGE)
    with tempfile.TemporaryDirectory(prefix="odradek-lab-") as directory:
        results = _run(Path(directory), only or list(SCENES), as_json=as_json)
    is_right = all(each["right"] for each in results)
    if as_json:
        print_json({"right": is_right, "scenes": results})
    else:
        scenes = "The scene was" if len(results) == 1 else f"All {len(results)} scenes were"
        say(f"{scenes} as expected." if is_right else "Not all was as expected.")
    if not is_right:
        raise typer.Exit(FAILED)


def _run(directory: Path, names: list[str], *, as_json: bool) -> list[dict[str, Any]]:
    from odradek.cli.lab.scenes import SCENES
    from odradek.cli.lab.workbench import Workbench
    from odradek.testing.processes import ProcessCluster

    say_on_stderr("Three brokers start …")
    results = []
    with ProcessCluster(directory, brokers=3, racks=["a", "b", "c"], settings=SETTINGS) as cluster:
        for name in names:
            scene, bench = SCENES[name], Workbench(cluster)
            title = (scene.__doc__ or "").strip()
            if not as_json:
                say(f"{name}: {title}")
            began = time.monotonic()
            scene(bench)
            steps = [
                {"did": step.did, "expected": step.expected, "seen": step.seen, "right": step.is_right}
                for step in bench.steps
            ]
            results.append(
                {
                    "scene": name,
                    "title": title,
                    "right": all(step.is_right for step in bench.steps),
                    "seconds": round(time.monotonic() - began, 1),
                    "steps": steps,
                }
            )
            if not as_json:
                headings = ["DONE", "EXPECTED", "SEEN", ""]
                marks = ["as expected" if step.is_right else "DIFFERENT" for step in bench.steps]
                print_table(
                    headings,
                    [[s.did, s.expected, s.seen, mark] for s, mark in zip(bench.steps, marks, strict=True)],
                )
                typer.echo("")
    return results
