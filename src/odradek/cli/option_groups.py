"""Options that several commands share, as fields of a class."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a dataclass type by the options of its fields.

    Typer reads the options of a command from its signature, so it gets one with all of them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type, list[inspect.Parameter]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            groups[parameter.name] = kind, _options_of(kind)
            parameters += groups[parameter.name][1]
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, (kind, options) in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in options})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect looks for
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__  # its signature is not the one to read
    return run


def _options_of(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is dataclasses.MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in dataclasses.fields(group)
    ]
