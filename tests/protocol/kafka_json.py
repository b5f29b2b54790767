"""Messages in the JSON form that Kafka's own JsonConverter classes read, and back."""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from typing import Any
from uuid import UUID

from odradek.protocol.declare import Message
from odradek.protocol.layout import layout_of

UNKNOWN = "unknownTaggedFields"


def camel_case(name: str) -> str:
    """Kafka's name of a field."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def to_json(message: Message, version: int, flexible: bool) -> dict[str, Any]:
    """The JSON form in one version; unknown tagged fields are added in a form of our own."""
    layout = layout_of(type(message), version, flexible)
    shown = {
        camel_case(one.spec.name): value_to_json(
            getattr(message, one.spec.name), one.spec.wire_type, one.spec.element, version, flexible
        )
        for one in (*layout.fields, *layout.tagged)
    }
    if message.unknown_tagged_fields:
        shown[UNKNOWN] = [[tag, b64encode(raw).decode()] for tag, raw in message.unknown_tagged_fields]
    return shown


def value_to_json(value: Any, wire_type: str, element: Any, version: int, flexible: bool) -> Any:
    """One value."""
    if value is None:
        return None
    if wire_type == "struct":
        return to_json(value, version, flexible)
    if wire_type == "array":
        inner = element if isinstance(element, str) else "struct"
        return [value_to_json(item, inner, element, version, flexible) for item in value]
    if wire_type == "uuid":
        return urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if wire_type in ("bytes", "records"):
        return b64encode(value).decode()
    return value


def from_json(cls: type[Message], shown: dict[str, Any], version: int, flexible: bool) -> Any:
    """The message that `to_json` has shown."""
    layout = layout_of(cls, version, flexible)
    message = cls()
    for one in (*layout.fields, *layout.tagged):
        value = shown[camel_case(one.spec.name)]
        value = value_from_json(value, one.spec.wire_type, one.spec.element, version, flexible)
        setattr(message, one.spec.name, value)
    message.unknown_tagged_fields = [(tag, b64decode(raw)) for tag, raw in shown.get(UNKNOWN, [])] or ()
    return message


def value_from_json(value: Any, wire_type: str, element: Any, version: int, flexible: bool) -> Any:
    """One value."""
    if value is None:
        return None
    if wire_type == "struct":
        return from_json(element, value, version, flexible)
    if wire_type == "array":
        inner = element if isinstance(element, str) else "struct"
        return [value_from_json(item, inner, element, version, flexible) for item in value]
    if wire_type == "uuid":
        return UUID(bytes=urlsafe_b64decode(value + "=="))
    if wire_type in ("bytes", "records"):
        return b64decode(value)
    return value
