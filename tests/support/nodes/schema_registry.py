"""A schema registry in this process: as much of Confluent's HTTP API as serializers and readers of values use.

POST /subjects/<subject>            {"schema": …} -> {"id": …, "version": …} where the subject has it
POST /subjects/<subject>/versions   {"schema": …} -> {"id": …}
GET  /subjects/<subject>/versions/<version, -1 or latest>
GET  /schemas/ids/<id>

A Protobuf schema is posted as the descriptor of a file in base64, which only `?format=serialized` gives back: a
registry makes the text of a .proto file of it otherwise.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class SchemaRegistry:
    """Started by `with`.

    Attributes:
        login: "user:password" that each request must have; None asks for none.
        refusal: why no schema is registered any more; None where each is.
        failures: so many of the next requests are answered with 503.
        asked: the paths of all requests.
    """

    def __init__(self) -> None:
        self.login: str | None = None
        self.refusal: str | None = None
        self.failures = 0
        self.asked: list[str] = []
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """Make it the subject's newest one; returns its id."""
        found = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **_kept(more)}
        if found not in self._schemas:
            self._schemas.append(found)
        number = self._schemas.index(found) + 1
        self._subjects.setdefault(subject, []).append(number)
        return number

    def _found(self, subject: str, schema: Mapping[str, Any]) -> int | None:
        """The id of a schema that a subject has."""
        kept = _kept(schema)
        return next((number for number in self._subjects.get(subject, ()) if self._schemas[number - 1] == kept), None)

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self._subjects.get(subject, [])
        number = len(versions) if version in ("latest", "-1") else int(version)
        if not 0 < number <= len(versions):
            return 404, {"error_code": 40402, "message": "Version not found"}
        one = {"subject": subject, "version": number, "id": versions[number - 1]}
        return 200, one | self._schemas[versions[number - 1] - 1]

    def _posted(self, subject: str, posted: Mapping[str, Any]) -> tuple[int, Any]:
        """A new version of a subject, unless it has the schema."""
        if self.refusal is not None:
            return 409, {"error_code": 409, "message": self.refusal}
        for each in posted.get("references") or ():
            if self._version(each["subject"], str(each["version"]))[0] != 200:
                return 422, {"error_code": 42201, "message": f"no reference found for {each['name']}"}
        return 200, {"id": self._found(subject, posted) or self.register(subject, **posted)}

    def __enter__(self) -> SchemaRegistry:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, posted: Mapping[str, Any] | None) -> tuple[int, Any]:
        """(the status, the body) of the response."""
        place, _, query = path.partition("?")
        status, found = self._at([unquote(part) for part in place.strip("/").split("/")], posted)
        if found.get("schemaType") == "PROTOBUF" and posted is None and "format=serialized" not in query:
            found = found | {"schema": 'syntax = "proto3";'}
        return status, found

    def _at(self, place: list[str], posted: Mapping[str, Any] | None) -> tuple[int, Any]:
        match place:
            case ["schemas", "ids", number] if 0 < int(number) <= len(self._schemas):
                return 200, self._schemas[int(number) - 1]
            case ["subjects", subject] if posted is not None and (found := self._found(subject, posted)):
                version = self._subjects[subject].index(found) + 1
                return 200, {"subject": subject, "id": found, "version": version} | _kept(posted)
            case ["subjects", subject, "versions"] if posted is not None:
                return self._posted(subject, posted)
            case ["subjects", subject, "versions", version] if subject in self._subjects:
                return self._version(subject, version)
            case ["subjects", *_]:
                return 404, {"error_code": 40401, "message": "Subject not found"}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(None)

            def do_POST(self) -> None:
                self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _reply(self, posted: Mapping[str, Any] | None) -> None:
                registry.asked.append(self.path)
                status, found = registry.answer(self.path, posted)
                login = None if registry.login is None else base64.b64encode(registry.login.encode()).decode()
                if login is not None and self.headers["Authorization"] != f"Basic {login}":
                    status, found = 401, {"error_code": 401, "message": "Unauthorized"}
                if registry.failures:
                    registry.failures -= 1
                    status, found = 503, {"error_code": 50301, "message": "away"}
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler


def _kept(posted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a schema that the registry stores, without empty ones."""
    return {name: posted[name] for name in ("schema", "schemaType", "references") if posted.get(name)}
