"""`${provider:path:key}` in values, as Kafka's config providers resolve it (KIP-297, KIP-421).

The three providers that Kafka ships are known by their class names: environment variables, a properties file, and a
directory with a file for each key. What a provider may read is limited by its own parameters, as in Kafka.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from odradek.settings.properties import parse_properties

_VARIABLE = re.compile(r"\$\{([^}:]+):(?:([^}:]*):)?([^}]+)\}")
_KNOWN = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "directory",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of providers: the process's environment, and text files by path (raises OSError)."""

    environment: Mapping[str, str] = field(repr=False)
    read_text: Callable[[Path], str]


def resolve_variables(properties: Mapping[str, str], sources: Sources) -> tuple[dict[str, str], list[str]]:
    """Replace every variable of a declared provider; returns the values and one line for each problem.

    A variable of a provider that `config.providers` does not name stays as it is, as in Kafka.
    """
    names = [name.strip() for name in properties.get("config.providers", "").split(",") if name.strip()]
    kinds: dict[str, str] = {}
    problems = []
    for name in names:
        class_name = properties.get(f"config.providers.{name}.class", "")
        kind = _KNOWN.get(class_name)
        if kind is None:
            problems.append(
                f"config.providers.{name}.class={class_name or '(missing)'}: must be one of {', '.join(_KNOWN)}"
            )
        else:
            kinds[name] = kind
    resolved = {}
    for key, value in properties.items():
        if "${" in value and not key.startswith("config.providers"):
            try:
                value = _VARIABLE.sub(lambda match: _look_up(match, kinds, properties, sources), value)
            except (OSError, LookupError, ValueError, re.error) as error:
                problems.append(f"{key}: {error}")
        resolved[key] = value
    return resolved, problems


def _look_up(match: re.Match[str], kinds: Mapping[str, str], properties: Mapping[str, str], sources: Sources) -> str:
    provider, path, key = match.groups()
    kind = kinds.get(provider)
    if kind is None:
        return match.group(0)
    parameters = f"config.providers.{provider}.param."
    if kind == "env":
        pattern = properties.get(parameters + "allowlist.pattern", ".*")
        if key not in sources.environment or not re.fullmatch(pattern, key):
            raise LookupError(f"environment variable {key} is not set, or not allowed by the provider's pattern")
        return sources.environment[key]
    place = _allowed_place(path, properties.get(parameters + "allowed.paths", ""))
    if kind == "file":
        values = parse_properties(sources.read_text(place))
        if key not in values:
            raise LookupError(f"{place} has no key {key}")
        return values[key]
    if "/" in key or key == "..":
        raise LookupError(f"{key} is not the name of a file in {place}")
    return sources.read_text(place / key)


def _allowed_place(path: str, allowed_paths: str) -> Path:
    """The resolved path. Raises LookupError if it is not below an allowed path."""
    # The resolved path counts, after all `..`.
    place = Path(posixpath.normpath(path or "."))
    paths = [item.strip() for item in allowed_paths.split(",")]
    allowed = [Path(posixpath.normpath(item)) for item in paths if item]
    if allowed and not any(root == place or root in place.parents for root in allowed):
        raise LookupError(f"{place} is not below the provider's allowed.paths")
    return place
