"""The options of the format `odradek` about values: their format, their schema, and what becomes of bad records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyspark_odradek.errors import OptionError

VALUE_FORMATS = ("binary", "json", "avro", "protobuf")
WRITTEN_FORMATS = VALUE_FORMATS[1:]
REGISTRY_OPTIONS = ("schemaRegistryUrl", "schemaRegistryUser", "schemaRegistryPassword", "schemaRegistrySubject")
REFERENCES = "schemaRegistryReferences"
# The text or bytes that Spark itself makes of a struct, by the format of a sink that has no registry.
_MADE_BY_SPARK = {"json": "text of the value, as with to_json", "protobuf": "bytes of the value, as with to_protobuf"}
_MADE_BY_SPARK["avro"] = "bytes of the value, as with to_avro"


@dataclass(frozen=True)
class RegistryAddress:
    """The connection to a schema registry: any of `urls`; `authorities` is a file of trusted certificates, in PEM."""

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    authorities: str | None = None


@dataclass(frozen=True)
class WrittenValues:
    """The writing of values with the frame of a registry: `form` is avro, json or protobuf.

    `schema` is None where it is the newest one of the subject, or, for Avro, made of the columns. `message` is of
    Protobuf; `references` of the others, in JSON.
    """

    form: str
    registry: RegistryAddress
    subject: str
    schema: str | None = None
    message: str | None = None
    references: str | None = None


# The meaning of valueSchema for the formats that need it.
_SCHEMAS = {
    "avro": "the Avro schema, in JSON; or schemaRegistryUrl",
    "protobuf": "a descriptor set, as protoc writes it; or schemaRegistryUrl",
}


def value_options(options: Mapping[str, str], topics: Sequence[str], kafka: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a query's options that are about values. Raises OptionError.

    Args:
        options: by their names in lower case.
        topics: that the query names.
        kafka: the client's settings.
    """
    form = options.get("valueformat", "binary").lower()
    if form not in VALUE_FORMATS:
        raise OptionError(f"valueFormat is one of {', '.join(VALUE_FORMATS)}, not {form!r}")
    bad, letters = _bad_records(options)
    if form == "binary":
        formats = f"valueFormat={' or '.join(VALUE_FORMATS[1:])}"
        _refuse(options, ("valueSchema", "badRecords", "deadLetterTopic", "schemaRegistryUrl"), formats)
    schema = options.get("valueschema", "").strip() or None
    registry = _registry(options, kafka)
    if registry is not None and form not in _SCHEMAS:
        _refuse(options, ("schemaRegistrySubject",), f"valueFormat={' or '.join(_SCHEMAS)}")
    is_registered = form in _SCHEMAS and registry is not None
    if form != "avro" or registry is None or schema is None:
        _refuse(options, (REFERENCES,), "valueFormat=avro, schemaRegistryUrl and valueSchema")
    if form in _SCHEMAS and schema is None and not is_registered:
        raise OptionError(f"valueFormat={form} needs the option valueSchema: {_SCHEMAS[form]}")
    return {
        "value_format": form,
        "value_schema": schema,
        "value_message": _message(options, form),
        "registry": registry,
        "registry_subject": _read_subject(options, topics) if is_registered and schema is None else None,
        "registry_references": options.get(REFERENCES.lower()),
        "bad_records": bad,
        "dead_letter_topic": letters,
    }


def written_values(options: Mapping[str, str], topic: str | None, kafka: Mapping[str, str]) -> WrittenValues | None:
    """The writing of a sink's values; None where they are bytes already. Raises OptionError.

    Args:
        options: by their names in lower case.
        topic: the option, where it is given.
        kafka: the client's settings.
    """
    form = options.get("valueformat", "binary").lower()
    if form == "binary":
        own = ("valueSchema", "valueMessage", *REGISTRY_OPTIONS, REFERENCES)
        _refuse(options, own, f"valueFormat={' or '.join(WRITTEN_FORMATS)}")
        return None
    if form not in WRITTEN_FORMATS:
        raise OptionError(f"valueFormat is one of {', '.join(VALUE_FORMATS)}, not {form!r}")
    registry = _registry(options, kafka)
    if registry is None:
        raise OptionError(
            f"valueFormat={form} of a sink needs schemaRegistryUrl: without a registry make {_MADE_BY_SPARK[form]}"
        )
    subject = _subject(options, topic)
    if subject is None:
        raise OptionError("each row names its topic: give schemaRegistrySubject, or the option topic")
    schema = options.get("valueschema", "").strip() or None
    if form == "protobuf":
        _refuse(options, (REFERENCES,), "valueFormat=avro or json: those of Protobuf are the imports of valueSchema")
    elif schema is None:
        _refuse(options, (REFERENCES,), "valueSchema")
    message = _message(options, form)
    return WrittenValues(form, registry, subject, schema, message, options.get(REFERENCES.lower()))


def _message(options: Mapping[str, str], form: str) -> str | None:
    """The name of the message, where it is given. Raises OptionError."""
    message = options.get("valuemessage", "").strip() or None
    if message is not None and form != "protobuf":
        raise OptionError("valueMessage has an effect only with valueFormat=protobuf")
    return message


def _registry(options: Mapping[str, str], kafka: Mapping[str, str]) -> RegistryAddress | None:
    """The schema registry of the values, which then have its frame. Raises OptionError."""
    urls = tuple(filter(None, (each.strip().rstrip("/") for each in options.get("schemaregistryurl", "").split(","))))
    if not urls:
        _refuse(options, REGISTRY_OPTIONS[1:], "schemaRegistryUrl")
        return None
    for url in urls:
        _check_url(url)
    user, password = options.get("schemaregistryuser"), options.get("schemaregistrypassword")
    if (user is None) != (password is None):
        raise OptionError("give schemaRegistryUser and schemaRegistryPassword, or neither")
    return RegistryAddress(urls, user, password, kafka.get("https.ca.location"))


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise OptionError(
            "schemaRegistryUrl is http://host:port or https://host:port; several have commas between them"
        )
    if parts.username is not None:
        raise OptionError("schemaRegistryUrl has a login: give schemaRegistryUser and schemaRegistryPassword instead")


def _subject(options: Mapping[str, str], topic: str | None) -> str | None:
    """The subject of the values' schema: without the option the one that producers of a topic register by default."""
    given = options.get("schemaregistrysubject", "").strip()
    return given or (None if topic is None else f"{topic}-value")


def _read_subject(options: Mapping[str, str], topics: Sequence[str]) -> str:
    """The subject whose newest schema has the columns."""
    subject = _subject(options, topics[0] if len(topics) == 1 else None)
    if subject is None:
        raise OptionError(
            "values of several topics have one schema in a query: give schemaRegistrySubject, or valueSchema"
        )
    return subject


def _bad_records(options: Mapping[str, str]) -> tuple[str, str | None]:
    """The treatment of records that do not decode, and the topic to which they are copied."""
    bad = options.get("badrecords", "fail").lower()
    if bad not in ("fail", "null"):
        raise OptionError(f"badRecords is fail or null, not {bad!r}; deadLetterTopic sends them to a topic")
    letters = options.get("deadlettertopic") or None
    if letters is not None and "badrecords" in options:
        raise OptionError("give badRecords or deadLetterTopic, not both")
    return bad, letters


def _refuse(options: Mapping[str, str], names: Sequence[str], needed: str) -> None:
    """Raise OptionError where one of these options is given without what it needs."""
    for name in names:
        if name.lower() in options:
            raise OptionError(f"{name} has an effect only with {needed}")
