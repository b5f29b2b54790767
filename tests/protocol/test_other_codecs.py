"""Two independent codecs agree: they read our bytes, with the same values, and write them back byte for byte.

kio has a class per version; kafka-python reads Kafka's definitions at run time. Both only ever see bytes that we wrote:
kio's native reader aborts the process on a hostile length.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import re
import warnings
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from kio.index import UnknownEntity, load_entity_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from odradek.protocol.codec import encode
from odradek.protocol.declare import Message
from odradek.protocol.layout import layout_of
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from tests.protocol.values import all_messages, sample

STYLES = ("default", "low", "plain", "high", "random")
KIO_KINDS: dict[str, Any] = {
    "request": EntityType.request,
    "response": EntityType.response,
    "header": EntityType.header,
}
# kio follows an older Kafka; these came later, or belong to logs that it does not have
KIO_MIN_VERSIONS = 620
KAFKA_PYTHON_MIN_VERSIONS = 470


def snake_case(name: str) -> str:
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def kio_class(cls: type[Message], version: int) -> Any:
    stem = snake_case(cls.__name__)
    if cls.KIND in ("request", "response"):
        stem = re.sub("_(request|response)$", "", stem)
    try:
        module = load_entity_module(stem, version, KIO_KINDS.get(cls.KIND, EntityType.data))
    except UnknownEntity:
        return None
    return getattr(module, cls.__name__)


@cache
def kafka_python_classes() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources in an old way
        return load_kafka_python()


def load_kafka_python() -> dict[str, Any]:
    import kafka.protocol
    from kafka.protocol.api_message import ApiMessage

    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate_stubs" not in module.name:
            importlib.import_module(module.name)

    def below(cls: Any) -> Iterator[Any]:
        for each in cls.__subclasses__():
            yield each
            yield from below(each)

    return {cls.__name__: cls for cls in below(ApiMessage) if cls._class_version is None}


def tame(message: Message) -> Message:
    """Remove unknown tagged fields, which the other codecs do not keep, from a message, and return it."""
    message.unknown_tagged_fields = ()
    if isinstance(message, ApiVersionsResponse):
        message.error_code = 0  # kafka-python reads an ApiVersions with an error in version 0, as clients must
    return message


def assert_same_values(ours: Message, theirs: Any, version: int, flexible: bool) -> int:
    """Compare every field that both name alike and hold alike; returns how many there were."""
    compared = 0
    layout = layout_of(type(ours), version, flexible)
    for one in (*layout.fields, *layout.tagged):
        value: Any = getattr(ours, one.spec.name)
        other: Any = getattr(theirs, one.spec.name, ours)
        if one.spec.wire_type == "struct" and value is not None and other is not ours:
            compared += assert_same_values(value, other, version, flexible)
        elif one.spec.wire_type == "array" and value and not isinstance(one.spec.element, str) and other is not ours:
            assert len(value) == len(other)
            compared += sum(assert_same_values(a, b, version, flexible) for a, b in zip(value, other, strict=True))
        elif type(value) is type(other) and isinstance(value, str | bytes | int | UUID):
            assert value == other, f"{type(ours).__name__}.{one.spec.name} version {version}"
            compared += 1
        elif isinstance(other, timedelta):
            assert value == other // timedelta(milliseconds=1)
    return compared


def in_kio(cls: type[Message], version: int, style: str) -> bool:
    """Whether kio knows this version and takes such values; asserts that it agrees."""
    entity = kio_class(cls, version)
    if entity is None:
        return False
    message = tame(sample(cls, version, style))
    wanted = encode(message, version)
    try:
        read, size = entity_reader(entity)(wanted, 0)
        written = io.BytesIO()
        entity_writer(entity)(written, read)
    except (ValueError, OverflowError, TypeError) as error:
        # numbers that are no error code, or no duration or date of Python's
        assert style not in ("default", "plain"), f"{cls.__name__} version {version}: {error}"
        return False
    assert size == len(wanted)
    assert written.getvalue() == wanted, f"{cls.__name__} version {version} {style}"
    assert_same_values(message, read, version, version in cls.FLEXIBLE)
    return True


def test_kio_agrees_on_every_message_and_version_that_it_has() -> None:
    agreed = {
        (cls, version)
        for cls in all_messages()
        for version in cls.VERSIONS.versions()
        for style in STYLES
        if in_kio(cls, version, style)
    }
    assert len(agreed) >= KIO_MIN_VERSIONS


def in_kafka_python(cls: type[Message], version: int, style: str) -> bool:
    theirs = kafka_python_classes().get(cls.__name__)
    if theirs is None or version > theirs.max_version:
        return False
    message = tame(sample(cls, version, style))
    wanted = encode(message, version)
    read = theirs.decode(wanted, version=version)
    compared = assert_same_values(message, read, version, version in cls.FLEXIBLE)
    assert compared or style != "plain" or not holds_plain_fields(cls, version)
    read._header = None  # which decode leaves unset and encode asks for
    assert bytes(read.encode(version=version)) == wanted, f"{cls.__name__} version {version} {style}"
    return True


def holds_plain_fields(cls: type[Message], version: int) -> bool:
    return any(
        one.spec.wire_type.startswith("int") or one.spec.wire_type == "string"
        for one in layout_of(cls, version, version in cls.FLEXIBLE).fields
        if not one.nullable
    )


def test_kafka_python_agrees_on_every_message_and_version_that_it_has() -> None:
    agreed = {
        (cls, version)
        for cls in all_messages()
        for version in cls.VERSIONS.versions()
        for style in STYLES
        if in_kafka_python(cls, version, style)
    }
    assert len(agreed) >= KAFKA_PYTHON_MIN_VERSIONS
