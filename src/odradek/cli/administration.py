"""Options that administrative commands share: the cluster, and JSON output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, administer, target
from odradek.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

T = TypeVar("T")


@dataclass(frozen=True)
class Administration:
    """The cluster, and the form of the output; a group of options (`with_option_groups`)."""

    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP
    command_config: CommandConfigOption = None
    as_json: JsonOption = False

    def run(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """Run `work` with the cluster and return its result. Raises as `administer`."""
        return administer(target(self.bootstrap_server, self.command_config), work)

    def report(self, value: object, text: str) -> None:
        """Print the result of a change: as JSON, or as a line of text."""
        if self.as_json:
            print_json(value)
        else:
            say(text)
