"""Writes the two pages that list the messages: `messages/index.py` and `api_key.py`."""

from __future__ import annotations

from typing import Any

from tools.generate_messages.write import snake_case

LOGS = {
    "kafka-metadata": "METADATA",
    "kafka-group-coordinator": "GROUP",
    "kafka-transaction-coordinator": "TRANSACTION",
    "kafka-share-coordinator": "SHARE",
    "kafka-storage": "REMOTE_LOG",
}


def api_key_source(definitions: list[tuple[str, dict[str, Any]]]) -> str:
    """The enum of API keys, those of removed APIs included."""
    keys = sorted((d["apiKey"], d["name"].removesuffix("Request")) for _, d in definitions if d["type"] == "request")
    lines = [f"    {snake_case(name).upper()} = {key}" for key, name in keys]
    body = "\n".join(lines)
    return (
        '"""Kafka\'s API keys by Kafka\'s names; generated from Kafka\'s definitions."""\n\n'
        "from __future__ import annotations\n\n"
        "from enum import IntEnum\n\n\n"
        "class ApiKey(IntEnum):\n"
        '    """Every API key; 4 to 7 went with ZooKeeper and have no versions any more."""\n\n'
        f"{body}\n"
    )


def index_source(definitions: list[tuple[str, dict[str, Any]]]) -> str:
    """The tables from keys and type ids to modules."""
    rows = []
    for _, request in definitions:
        if request["type"] == "request" and request["validVersions"] != "none":
            stem = snake_case(request["name"].removesuffix("Request"))
            unstable = bool(request.get("latestVersionUnstable"))
            rows.append((request["apiKey"], stem, unstable, tuple(request["listeners"])))
    lines = [
        '"""Which module holds which message, by API key or type of record; generated from Kafka\'s definitions."""\n',
        "from __future__ import annotations\n",
        "# API key: (stem of the modules of request and response, whether the newest version is unstable, listeners)",
        "APIS: dict[int, tuple[str, bool, tuple[str, ...]]] = {",
        *(f"    {key}: ({quoted(stem)}, {unstable}, {listed(on)})," for key, stem, unstable, on in sorted(rows)),
        "}",
    ]
    for artifact, log in LOGS.items():
        lines += log_tables(artifact, log, definitions)
    return "\n".join(lines) + "\n"


def log_tables(artifact: str, log: str, definitions: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """The tables from type id to module of one log's records."""
    lines = []
    for kind, suffix in (("metadata", "RECORDS"), ("coordinator-key", "KEYS"), ("coordinator-value", "VALUES")):
        rows = sorted(
            (d["apiKey"], snake_case(d["name"])) for a, d in definitions if a == artifact and d["type"] == kind
        )
        if rows:
            body = [f"    {key}: {quoted(module)}," for key, module in rows]
            lines += ["", f"{log}_{suffix}: dict[int, str] = {{", *body, "}"]
    return lines


def quoted(text: str) -> str:
    """A Python string in the quotes that the formatter wants."""
    return f'"{text}"'


def listed(words: tuple[str, ...]) -> str:
    """A Python tuple of strings."""
    return "(" + ", ".join(map(quoted, words)) + ("," if len(words) == 1 else "") + ")"
