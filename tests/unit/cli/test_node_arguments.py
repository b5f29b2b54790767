"""The plain command line of `odradek broker`, which is read without typer."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cli.node import NodeArguments, read_arguments


@pytest.mark.parametrize(
    ("line", "config", "override"),
    [
        ("", None, []),
        ("-c a.properties", Path("a.properties"), []),
        ("--config a.properties --override x=1 --override=y=2=3", Path("a.properties"), ["x=1", "y=2=3"]),
        ("--config=a.properties", Path("a.properties"), []),
        ("--override nonsense", None, ["nonsense"]),
    ],
)
def test_a_plain_line_is_read(line: str, config: Path | None, override: list[str]) -> None:
    assert read_arguments(line.split()) == NodeArguments(config, override)


@pytest.mark.parametrize("line", ["--help", "-h", "x", "--config", "--override", "-c=x", "--confg x", "--config a --"])
def test_other_arguments_are_left_to_the_command(line: str) -> None:
    assert read_arguments(line.split()) is None
