"""Settings: declared once, beside the component that reads them.

A component's settings are a frozen dataclass decorated with `config`; each field is an `option()` whose arguments are
the documentation, the validator, the CLI help, the DescribeConfigs answer and the docs row. Components receive the
typed object, never a dict or a global; a dynamic change swaps in a new frozen object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from odradek.settings.table import GROUP_SYNONYM_PREFIX, broker_synonyms, is_secret

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """The arguments of `option()`; `key` is Kafka's broker key ("" for a setting that only topics or groups have)."""

    key: str
    topic_key: str
    group_key: str
    doc: str
    unit: str
    synonyms: tuple[str, ...]

    @property
    def other_broker_keys(self) -> tuple[str, ...]:
        """The broker keys besides `key` that this setting reads: its synonyms, and the defaults of its overrides."""
        of_topics = [key for key, _ in broker_synonyms(self.topic_key)] if self.topic_key else []
        of_groups = [GROUP_SYNONYM_PREFIX + self.group_key] if self.group_key else []
        return (*self.synonyms, *of_topics, *of_groups)


def option(
    key: str = "",
    *,
    default: Any,
    doc: str,
    topic_key: str = "",
    group_key: str = "",
    unit: str = "",
    synonyms: tuple[str, ...] = (),
) -> Any:
    """Declare one setting. Type, bounds and update mode come from Kafka's table for `key` (or the topic or group key).

    A secret is omitted from the `repr` of the settings, which may be in a log or a traceback.

    Args:
        key: Kafka's dotted broker key.
        default: the default value; a test compares it with Kafka's.
        doc: one sentence in our words; it is the docs row and the CLI help.
        topic_key, group_key: the dotted key of the per-topic or per-group override, if there is one.
        unit: of the number: "ms", "bytes", "count"; "" if it has none.
        synonyms: broker keys for the same value, in order of precedence, as `log.retention.minutes`.
    """
    spec = OptionSpec(key, topic_key, group_key, doc, unit, synonyms)
    return dataclasses.field(default=default, repr=not is_secret(key), metadata={"option": spec})


@dataclass_transform(frozen_default=True, field_specifiers=(option,))
def config(cls: type[T]) -> type[T]:
    """Make a class of `option()` fields a frozen, slotted dataclass."""
    return dataclass(frozen=True, slots=True)(cls)


def specs_of(config_classes: Iterable[type]) -> Iterator[OptionSpec]:
    """The declarations of all settings of these classes."""
    for config_class in config_classes:
        for item in dataclasses.fields(config_class):
            if (spec := item.metadata.get("option")) is not None:
                yield spec
