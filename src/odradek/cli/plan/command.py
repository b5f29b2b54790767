"""`odradek plan`: computes the number and size of brokers, and their settings, from the load of a topic."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from odradek.cli.errors import USAGE, CliError
from odradek.cli.numbers import finite
from odradek.cli.output import JsonOption, print_json, print_table, say, say_on_stderr

app = typer.Typer(add_completion=False)

_BYTES = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SECONDS = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]*)")

RateOption = Annotated[
    float, typer.Option("--rate", help="Events a second, at the busiest time of today.", min=0.001, callback=finite)
]
GrowthOption = Annotated[
    float, typer.Option("--growth", help="The growth of the rate, as a factor.", min=1, callback=finite)
]
ConsumerRateOption = Annotated[
    float,
    typer.Option("--consumer-rate", help="Events a second that one consumer gets done.", min=0.001, callback=finite),
]
CompressionOption = Annotated[
    float,
    typer.Option("--compression", help="Bytes of events for a byte that is sent and stored.", min=1, callback=finite),
]


@app.command()
def plan(
    size: Annotated[str, typer.Option("--size", help="Of an event: 512, 10KB, 2MiB.", metavar="BYTES")],
    rate: RateOption,
    latency: Annotated[str, typer.Option("--latency", help="To the acknowledgement, at most.")] = "100ms",
    retention: Annotated[str, typer.Option("--retention", help="How long events are kept: 12h, 7d.")] = "7d",
    growth: GrowthOption = 1,
    outlive: Annotated[int, typer.Option("--outlive", help="How many brokers may fail at once.", min=0, max=5)] = 1,
    readers: Annotated[int, typer.Option("--readers", help="Groups that read everything.", min=0)] = 2,
    consumer_rate: ConsumerRateOption = 10_000,
    compression: CompressionOption = 1,
    profile: Annotated[
        Literal["resilience", "throughput", "payload"], typer.Option("--profile", help="The aim of the settings.")
    ] = "resilience",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the settings as files into this directory.", metavar="DIRECTORY")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute brokers and settings for a load, with the source and the certainty of each number."""
    from odradek.cli.plan import profiles, sizing

    demand = sizing.Demand(
        size=round(_amount("--size", size, _BYTES, any_case=True)),
        rate=rate,
        latency_ms=_amount("--latency", latency, _SECONDS) * 1000,
        retention_s=_amount("--retention", retention, _SECONDS),
        growth=growth,
        outlive=outlive,
        readers=readers,
        consumer_rate=consumer_rate,
        compression=compression,
    )
    found = sizing.plan(demand)
    files = profiles.settings(profile, demand, found)
    lines, warnings = list(sizing.lines(demand, found)), list(sizing.warnings(demand, found))
    texts = {name: profiles.as_text(properties) for name, properties in files.items()}
    if out is not None:
        _write(texts, out)
    if as_json:
        print_json(
            {
                "demand": asdict(demand),
                "sizing": asdict(found),
                "lines": [asdict(line) for line in lines],
                "warnings": warnings,
                "profile": profile,
                "settings": files,
            }
        )
        return
    print_table(["WHAT", "NEEDED", "SURE", "FROM"], [[line.what, line.amount, line.sure, line.why] for line in lines])
    typer.echo("")
    for warning in warnings:
        say_on_stderr(f"odradek: {warning}")
    say(f"Profile {profile}: {profiles.WHAT[profile]}.")
    if out is not None:
        say(f"Written to {out}: {', '.join(texts)}.")
        return
    for name, text in texts.items():
        typer.echo(f"\n# {name}\n{text}", nl=False)


def _write(texts: dict[str, str], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")


def _amount(option: str, text: str, units: dict[str, float], *, any_case: bool = False) -> float:
    """Parse a number with a unit. Raises CliError."""
    found = _NUMBER.fullmatch(text.strip())
    factors = {unit.upper(): factor for unit, factor in units.items()} if any_case else units
    factor = factors.get(found[2].upper() if any_case else found[2]) if found else None
    if found is None or factor is None or float(found[1]) <= 0:
        named = ", ".join(filter(None, units))
        raise CliError(f"{option} {text}: give a number above 0 with one of {named}", code=USAGE)
    return float(found[1]) * factor
