"""Topic names on a command line: arguments, or options as in Kafka's tools; `-t` as in kcat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from odradek.cli.completion import topic_names
from odradek.cli.errors import USAGE, CliError

TopicArgument = Annotated[str | None, typer.Argument(help="The topic's name.", autocompletion=topic_names)]
TopicOption = Annotated[
    str | None, typer.Option("--topic", "-t", help="The topic, as an option.", autocompletion=topic_names)
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="The same as an option; may be given often.", autocompletion=topic_names),
]
PatternArgument = Annotated[
    str | None,
    typer.Argument(help="A name, or a regular expression that must match the whole name.", autocompletion=topic_names),
]


def one_topic(argument: str | None, option: str | None) -> str:
    """The only topic. Raises CliError for none or several."""
    found = at_most_one_topic(argument, option)
    if found is None:
        raise _none()
    return found


def at_most_one_topic(argument: str | None, option: str | None) -> str | None:
    """The topic, if there is one. Raises CliError for several."""
    if argument is not None and option not in (None, argument):
        raise CliError(f"say which topic: {argument}, or --topic {option}", code=USAGE)
    return argument if argument is not None else option


def some_topics(arguments: Sequence[str] | None, options: Sequence[str] | None) -> list[str]:
    """All topics, each once. Raises CliError for none."""
    found = list(dict.fromkeys([*(arguments or ()), *(options or ())]))
    if not found:
        raise _none()
    return found


def _none() -> CliError:
    return CliError("say which topic: name it behind the command, or with --topic", code=USAGE)
