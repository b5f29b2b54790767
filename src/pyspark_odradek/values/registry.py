"""Schemas of a registry that speaks Confluent's HTTP API, as Apicurio's and Karapace do: by id, or the newest one.

A schema of an id never changes, so a process asks once for each. Blocks. Source: the API reference of Confluent's
Schema Registry. Not done: schemas that refer to others, writing.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

from odradek.common.backoff import Backoff
from odradek.common.real_https import exchange
from pyspark_odradek.errors import ClusterError, OptionError, one_line
from pyspark_odradek.value_options import RegistryAddress

FIRST_BACKOFF_MS, LAST_BACKOFF_MS = 50, 1000
PATIENCE_S = 60.0  # for a registry that is away
ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"


class UnknownSchemaError(Exception):
    """The registry does not have a schema that a record names, or none that can be read."""


class Registry:
    """One registry, with the schemas that this process has asked for."""

    def __init__(self, address: RegistryAddress) -> None:
        self._address = address
        self._headers = {"Accept": ACCEPTED}
        if address.user is not None:
            login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"

    def schema(self, schema_id: int) -> str:
        """An Avro schema in JSON, by its id.

        Raises:
            UnknownSchemaError: there is none, or it is no Avro.
            ClusterError: the registry refuses, or does not answer.
        """
        key = (self._address, schema_id)
        if key not in _KNOWN:
            found = self._asked(f"/schemas/ids/{schema_id}")
            if found is None:
                raise UnknownSchemaError(f"the schema registry has no schema {schema_id}")
            _KNOWN[key] = _avro(found, f"schema {schema_id}")
        return _KNOWN[key]

    def newest(self, subject: str) -> str:
        """The newest Avro schema of a subject.

        Raises:
            OptionError: there is none, or it is no Avro.
            ClusterError: the registry refuses, or does not answer.
        """
        found = self._asked(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if found is None:
            raise OptionError(
                f"the schema registry has no subject {subject}: set schemaRegistrySubject to the one that producers "
                "register, or valueSchema to the schema that the columns are made of"
            )
        try:
            return _avro(found, f"the newest schema of {subject}")
        except UnknownSchemaError as error:
            raise OptionError(str(error)) from None

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._address.authorities)
        except OSError as error:
            raise OptionError(f"kafka.https.ca.location: {one_line(error)}") from None

    def _asked(self, path: str) -> dict[str, Any] | None:
        """A document; None where there is none. One address after the other is asked until one answers."""
        urls = self._address.urls
        deadline = time.monotonic() + PATIENCE_S
        backoff = Backoff(FIRST_BACKOFF_MS, LAST_BACKOFF_MS)
        tls, number = self._tls, 0
        while True:
            url = urls[number % len(urls)]
            try:
                return self._answer(url, path, tls)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"the schema registry at {url} does not answer: {one_line(error)}") from None
            number += 1
            if number % len(urls) == 0:
                time.sleep(backoff.next_ms() / 1000)

    def _answer(self, url: str, path: str, tls: ssl.SSLContext) -> dict[str, Any] | None:
        """Raises OSError where another try may help."""
        request = Request(url + path, headers=self._headers)  # noqa: S310 - http or https, as the options were checked
        try:
            found = json.loads(exchange(request, tls))
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.TOO_MANY_REQUESTS:
                raise
            advice = ". Check schemaRegistryUser and schemaRegistryPassword" if error.code in (401, 403) else ""
            raise ClusterError(f"the schema registry at {url} answers {error.code} {error.reason}{advice}") from None
        except HTTPException as error:
            raise OSError(f"what comes is no HTTP: {one_line(error)}") from None
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise ClusterError(f"what answers at {url}{path} is no schema registry")
        return found


# Of this process, by registry and id.
_KNOWN: dict[tuple[RegistryAddress, int], str] = {}


def _avro(found: dict[str, Any], which: str) -> str:
    kind = found.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise UnknownSchemaError(f"{which} in the registry is {kind}, and valueFormat is avro")
    if found.get("references"):
        raise UnknownSchemaError(f"{which} in the registry refers to other schemas, which is not supported")
    return str(found["schema"])
