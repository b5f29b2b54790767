"""Schemas of a registry that speaks Confluent's HTTP API, as Apicurio's and Karapace do: by id, the newest, a new one.

A schema of an id never changes, so a process asks once for each. A schema may refer to versions of other subjects,
which are asked for with it. Blocks. Source: the API reference of Confluent's Schema Registry.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

from odradek.common.backoff import Backoff
from odradek.common.real_https import exchange
from pyspark_odradek.errors import ClusterError, OptionError, one_line
from pyspark_odradek.value_options import RegistryAddress
from pyspark_odradek.values.avro_references import whole

FIRST_BACKOFF_MS, LAST_BACKOFF_MS = 50, 1000
PATIENCE_S = 60.0  # for a registry that is away
SENT = "application/vnd.schemaregistry.v1+json"
ACCEPTED = f"{SENT}, application/json"
KINDS = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}  # of schemas, by valueFormat
MOST_REASON_BYTES = 2000  # of a registry's answer


class UnknownSchemaError(Exception):
    """The registry does not have a schema that a record names, or none that can be read."""


class Reference(NamedTuple):
    """The name of another schema within a schema, and where it is in the registry; version -1 is the newest."""

    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    """A schema, as its text, and the id that values name it by.

    `needed` has the texts of the schemas that it refers to, and those that they refer to, which are before them. It has
    none of JSON, whose values are not compared with their schema.
    """

    schema_id: int
    schema: str
    needed: Mapping[str, str] = MappingProxyType({})


class Registry:
    """One registry, with the schemas that this process has asked for."""

    def __init__(self, address: RegistryAddress) -> None:
        self._address = address
        self._headers = {"Accept": ACCEPTED}
        if address.user is not None:
            login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"

    def schema(self, schema_id: int) -> str:
        """An Avro schema in JSON, by its id; it has in it what the registered one refers to.

        Raises:
            UnknownSchemaError: there is none, or it is no Avro.
            ClusterError: the registry refuses, or does not answer.
        """
        key = (self._address, schema_id)
        if key not in _KNOWN:
            found = self._asked(f"/schemas/ids/{schema_id}")
            if found is None:
                raise UnknownSchemaError(f"the schema registry has no schema {schema_id}")
            which = f"schema {schema_id}"
            _KNOWN[key] = whole(_text(found, which, "avro"), self._needed(found, which, "avro"))
        return _KNOWN[key]

    def newest(self, subject: str) -> str:
        """The newest Avro schema of a subject; it has in it what the registered one refers to.

        Raises:
            OptionError: there is none, or it is no Avro.
            ClusterError: the registry refuses, or does not answer.
        """
        found = self.latest(subject, "avro")
        if found is None:
            raise no_subject(subject)
        return whole(found.schema, found.needed)

    def latest(self, subject: str, form: str) -> RegisteredSchema | None:
        """The newest schema of a subject; None where there is none.

        Args:
            form: avro, json or protobuf, whose text is a file's descriptor in base64.
        Raises:
            OptionError: it is of another format, or refers to what the registry does not have.
            ClusterError: the registry refuses, or does not answer.
        """
        found = self._version(subject, "latest", form)
        if found is None:
            return None
        which = f"the newest schema of {subject}"
        try:
            schema = _text(found, which, form)
            needed = self._needed(found, which, form)
        except UnknownSchemaError as error:
            raise OptionError(str(error)) from None
        if not isinstance(found.get("id"), int):
            raise ClusterError(f"the schema registry gives the newest schema of {subject} without an id")
        return RegisteredSchema(found["id"], schema, needed)

    def register(self, subject: str, schema: str, form: str, references: Sequence[Reference] = ()) -> int:
        """The id of a schema in a subject; it becomes the newest one of the subject where that does not have it.

        Args:
            form: avro, json or protobuf.
            references: what the schema refers to.
        Raises:
            OptionError: the registry does not take it: it is not compatible with the ones before, or no schema.
            ClusterError: the registry refuses, or does not answer.
        """
        asked = _posted(schema, form, references)
        for path in (_path_of(subject), f"{_path_of(subject)}/versions"):  # the first one asks, and needs fewer rights
            found = self._asked(path, asked)
            if found is not None:
                return int(found["id"])
        raise ClusterError(f"the schema registry does not register a schema of {subject}")

    def version_of(self, subject: str, schema: str, form: str, references: Sequence[Reference] = ()) -> int:
        """The version of a schema in a subject, for references to it; args and errors are those of `register`."""
        asked = _posted(schema, form, references)
        found = self._asked(_path_of(subject), asked)
        if found is None:
            self.register(subject, schema, form, references)
            found = self._asked(_path_of(subject), asked)
        if found is None or not isinstance(found.get("version"), int):
            raise ClusterError(f"the schema registry gives no version of a schema of {subject}")
        return int(found["version"])

    def texts(self, references: Sequence[Reference], form: str) -> dict[str, str]:
        """The texts of what a schema refers to, by their names, and of what those refer to, which are before them.

        Raises:
            UnknownSchemaError: the registry does not have one, or it is of another format.
            ClusterError: the registry refuses, or does not answer.
        """
        texts: dict[str, str] = {}
        asked_for: set[Reference] = set()

        def add(some: Sequence[Reference]) -> None:
            for reference in some:
                if reference in asked_for:
                    continue
                asked_for.add(reference)
                which = f"version {reference.version} of {reference.subject}"
                found = self._version(reference.subject, str(reference.version), form)
                if found is None:
                    raise UnknownSchemaError(f"the schema registry has no {which}, which a schema refers to")
                add(_references(found, which))
                texts[reference.name] = _text(found, which, form)

        add(references)
        return texts

    def whole(self, schema: str, references: Sequence[Reference]) -> str:
        """An Avro schema that has in it what it refers to. Raises OptionError, ClusterError."""
        try:
            return whole(schema, self.texts(references, "avro"))
        except UnknownSchemaError as error:
            raise OptionError(f"schemaRegistryReferences: {error}") from None

    def _version(self, subject: str, version: str, form: str) -> dict[str, Any] | None:
        query = "?format=serialized" if form == "protobuf" else ""  # the text of a .proto file otherwise
        return self._asked(f"{_path_of(subject)}/versions/{version}{query}")

    def _needed(self, found: dict[str, Any], which: str, form: str) -> dict[str, str]:
        return {} if form == "json" else self.texts(_references(found, which), form)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._address.authorities)
        except OSError as error:
            raise OptionError(f"kafka.https.ca.location: {one_line(error)}") from None

    def _asked(self, path: str, posted: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """A document; None where there is none. One address after the other is asked until one answers."""
        urls = self._address.urls
        deadline = time.monotonic() + PATIENCE_S
        backoff = Backoff(FIRST_BACKOFF_MS, LAST_BACKOFF_MS)
        tls, number = self._tls, 0
        while True:
            url = urls[number % len(urls)]
            try:
                return self._answer(url, path, tls, posted)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"the schema registry at {url} does not answer: {one_line(error)}") from None
            number += 1
            if number % len(urls) == 0:
                time.sleep(backoff.next_ms() / 1000)

    def _answer(self, url: str, path: str, tls: ssl.SSLContext, posted: dict[str, Any] | None) -> dict[str, Any] | None:
        """Raises OSError where another try may help."""
        request = Request(url + path, headers=self._headers)  # noqa: S310 - http or https, as the options were checked
        if posted is not None:
            request.data = json.dumps(posted).encode()
            request.add_header("Content-Type", SENT)
        try:
            found = json.loads(exchange(request, tls))
        except HTTPError as error:
            reason = _reason_of(error)
            error.close()
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.TOO_MANY_REQUESTS:
                raise
            if posted is not None and error.code in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
                raise OptionError(f"the schema registry refuses the schema of the values: {reason}") from None
            advice = ". Check schemaRegistryUser and schemaRegistryPassword" if error.code in (401, 403) else ""
            raise ClusterError(f"the schema registry at {url} answers {error.code} {error.reason}{advice}") from None
        except HTTPException as error:
            raise OSError(f"what comes is no HTTP: {one_line(error)}") from None
        except ValueError:
            found = None
        name, kind = ("schema", str) if posted is None else ("id", int)
        if not isinstance(found, dict) or not isinstance(found.get(name), kind):
            raise ClusterError(f"what answers at {url}{path} is not a schema registry")
        return found


# Of this process, by registry and id.
_KNOWN: dict[tuple[RegistryAddress, int], str] = {}


def no_subject(subject: str) -> OptionError:
    """The error if there is no schema from which columns could be made."""
    return OptionError(
        f"the schema registry has no subject {subject}: set schemaRegistrySubject to the one that producers register, "
        "or valueSchema to the schema that the columns are made of"
    )


def _path_of(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _reason_of(error: HTTPError) -> str:
    """The registry's reason for a refusal, in one line."""
    try:
        return one_line(ValueError(json.loads(error.read(MOST_REASON_BYTES))["message"]))
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"


def _text(found: dict[str, Any], which: str, form: str) -> str:
    kind = found.get("schemaType", KINDS["avro"])
    if kind != KINDS[form]:
        raise UnknownSchemaError(f"{which} in the registry is {kind}, and valueFormat is {form}")
    return str(found["schema"])


def _posted(schema: str, form: str, references: Sequence[Reference]) -> dict[str, Any]:
    kind = {} if form == "avro" else {"schemaType": KINDS[form]}
    return {"schema": schema} | kind | ({"references": [each._asdict() for each in references]} if references else {})


def _references(found: dict[str, Any], which: str) -> list[Reference]:
    """The columns of a schema of the registry. Raises UnknownSchemaError where they are none."""
    try:
        return _parsed(found.get("references") or [])
    except ValueError:
        raise UnknownSchemaError(f"{which} in the registry has references without name, subject or version") from None


def parse_references(text: str | None) -> list[Reference]:
    """The option schemaRegistryReferences. Raises OptionError."""
    try:
        return _parsed(json.loads(text or "[]"))
    except ValueError:
        raise OptionError(
            'schemaRegistryReferences is [{"name": "…", "subject": "…", "version": 1}, …], as in the registry\'s API'
        ) from None


def _parsed(given: Any) -> list[Reference]:
    """References as the API of a registry has them. Raises ValueError."""
    if not isinstance(given, list):
        raise ValueError(f"no list of references: {given!r}")
    for each in given:
        kinds = {"name": str, "subject": str, "version": int}
        if not isinstance(each, dict) or not all(type(each.get(name)) is kind for name, kind in kinds.items()):
            raise ValueError(f"no reference: {each!r}")
    return [Reference(each["name"], each["subject"], each["version"]) for each in given]
