"""Logs dynamic settings without effect when they are set, as those of the file at the start.

A topic may have settings of Kafka's tiered storage, and a broker those of a plugin: they are stored and described, and
have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from itertools import islice

from odradek.common.log_lines import get_logger
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ConfigResource, ResourceType
from odradek.server.startup.honoured_settings import honoured_overrides, honoured_settings
from odradek.settings.broker import DRAIN_KEY, DRAIN_STOP_KEY
from odradek.settings.links import split_key
from odradek.settings.listeners import LISTENER_PREFIX, split_listener_key
from odradek.settings.rules import READ_BY_THE_NODE
from odradek.settings.table import DYNAMIC_ONLY, Scope, setting
from odradek.settings.unused import reason_unused

_SCOPES = {
    int(ResourceType.TOPIC): Scope.TOPIC,
    int(ResourceType.BROKER): Scope.BROKER,
    int(ResourceType.GROUP): Scope.GROUP,
}
_OTHER_BROKER_KEYS = frozenset({*DYNAMIC_ONLY, DRAIN_KEY, DRAIN_STOP_KEY})
_NO_LISTENER = "no listener has this name"
# The most lines of one change: a resource may have thousands of settings, which a client names.
MAX_LINES = 20
_log = get_logger("server.settings")


@cache
def _honoured() -> dict[Scope, frozenset[str]]:
    return {
        Scope.BROKER: honoured_settings() | READ_BY_THE_NODE.keys() | _OTHER_BROKER_KEYS,
        Scope.TOPIC: honoured_overrides(Scope.TOPIC),
        Scope.GROUP: honoured_overrides(Scope.GROUP),
    }


def has_effect(scope: str, key: str, value: str | None) -> bool:
    """Whether a setting of a "topic" or "broker" is acted on, or changes nothing anyway; a hidden value is None."""
    of = Scope(scope)
    if of is Scope.BROKER and split_key(key) is not None:
        return True
    return _plain(key) in _honoured()[of] or (value is not None and _is_default(of, key, value))


class IgnoredSettings:
    """Warns once for each key of each change, however many topics it was set on, up to `MAX_LINES` keys."""

    def __init__(self, node_id: int, listeners: Callable[[], Container[str]]) -> None:
        """`listeners` returns the names, in lower case, that keys of listeners may have."""
        self._node_id = node_id
        self._listeners = listeners
        self._honoured = _honoured()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Log changed settings without effect."""
        found = self.find(delta.changed_configs, image.configs)
        for (scope, key), names in islice(found.items(), MAX_LINES):
            reason = _NO_LISTENER if self._is_elsewhere(key) else reason_unused(_plain(key))
            _log.warning(
                "unsupported dynamic setting ignored",
                setting=key,
                of=scope.value,
                name=names[0] or "(all brokers)",
                others=len(names) - 1,
                **({"reason": reason} if reason else {}),
            )
        if len(found) > MAX_LINES:
            _log.warning("more unsupported dynamic settings ignored", count=len(found) - MAX_LINES)

    def find(
        self, changed: Iterable[ConfigResource], configs: Mapping[ConfigResource, Mapping[str, str]]
    ) -> dict[tuple[Scope, str], list[str]]:
        """The names of the resources among `changed` that set a key which is not honoured, by scope and key."""
        found: dict[tuple[Scope, str], list[str]] = {}
        for kind, name in sorted((int(kind), name) for kind, name in changed):
            scope = _SCOPES.get(kind)
            if scope is None or (scope is Scope.BROKER and name not in ("", str(self._node_id))):
                continue
            for key, text in configs.get((kind, name), {}).items():
                if split_key(key) is None and (
                    self._is_elsewhere(key)
                    or (_plain(key) not in self._honoured[scope] and not _is_default(scope, key, text))
                ):
                    found.setdefault((scope, key), []).append(name)
        return found

    def _is_elsewhere(self, key: str) -> bool:
        """Whether a key is of a listener that there is not."""
        name = key.removeprefix(LISTENER_PREFIX).partition(".")[0]
        return key.startswith(LISTENER_PREFIX) and name not in self._listeners()


def _plain(key: str) -> str:
    """The name of a setting, without the prefix of a listener."""
    return split_listener_key(key)[2] if key.startswith(LISTENER_PREFIX) else key


def _is_default(scope: Scope, key: str, text: str) -> bool:
    """Whether a value changes nothing anyway."""
    row = setting(scope, key)
    try:
        return row is not None and row.parse(text) == row.default_value()
    except ValueError:
        return False
