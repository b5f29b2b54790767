"""The table of Kafka's APIs: versions, where flexible versions begin, headers, listeners, and the message classes.

It has the whole protocol; the table of handlers has the APIs that this broker serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from odradek.protocol.api_key import ApiKey
from odradek.protocol.declare import Message
from odradek.protocol.messages.index import APIS

__all__ = ["API", "ApiKey", "ApiSpec", "Apis", "api_name", "message_class"]


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One API.

    `min_version` to `max_version` (both inclusive) are the stable versions that clients may be offered;
    `latest_unstable` says that the messages define one more, `max_version + 1`, which must not be advertised.
    `flexible_since` is the first flexible version, or -1 where none is.
    """

    key: ApiKey
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    latest_unstable: bool
    flexible_since: int
    listeners: frozenset[str]

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return 0 <= self.flexible_since <= version

    def request_header_version(self, version: int) -> int:
        """The version of RequestHeader before a request of this version."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """The version of ResponseHeader before the response; always 0 for ApiVersions, so that any client can read it.

        Source: KIP-511.
        """
        if self.key is ApiKey.API_VERSIONS:
            return 0
        return 1 if self.is_flexible(version) else 0


def message_class(module: str) -> type[Message]:
    """The class of `protocol/messages/<module>.py` that is a whole message."""
    found: type[Message]
    members = vars(import_module(f"odradek.protocol.messages.{module}")).values()
    (found,) = (cls for cls in members if isinstance(cls, type) and issubclass(cls, Message) and is_whole(cls))
    return found


def is_whole(cls: type[Message]) -> bool:
    """Whether the class is a message, not a struct within one nor their base."""
    return cls is not Message and cls.KIND != "struct"


class Apis(Mapping[ApiKey, ApiSpec]):
    """The table: any int may be looked up, and KeyError says that there is no such API.

    The two modules of an API are imported when it is first looked up: a client or tool uses a dozen of ninety.
    """

    def __init__(self) -> None:
        self._specs: dict[int, ApiSpec] = {}

    def __getitem__(self, key: int) -> ApiSpec:
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = _load(key)
        return spec

    def __contains__(self, key: object) -> bool:
        return key in APIS

    def __iter__(self) -> Iterator[ApiKey]:
        return map(ApiKey, APIS)

    def __len__(self) -> int:
        return len(APIS)


def _load(key: int) -> ApiSpec:
    stem, latest_unstable, listeners = APIS[key]
    request, response = message_class(f"{stem}_request"), message_class(f"{stem}_response")
    assert request.VERSIONS == response.VERSIONS and request.FLEXIBLE == response.FLEXIBLE, stem
    flexible = request.FLEXIBLE
    return ApiSpec(
        key=ApiKey(key),
        request=request,
        response=response,
        min_version=request.VERSIONS.first,
        max_version=request.VERSIONS.last - (1 if latest_unstable else 0),
        latest_unstable=latest_unstable,
        flexible_since=flexible.first if flexible.last >= flexible.first else -1,
        listeners=frozenset(listeners),
    )


API: Final = Apis()


def api_name(key: ApiKey) -> str:
    """Kafka's name of an API: CreateTopics."""
    return "".join(part.capitalize() for part in key.name.split("_"))
