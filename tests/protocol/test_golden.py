"""Byte for byte what Kafka's own Java classes write, for every message and version.

The bytes are kept in `golden/kafka.jsonl.xz`, so that no Java is needed here; `make golden` writes them again.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.codec import decode, encode
from odradek.protocol.declare import Message
from odradek.protocol.encoder import compile_encoder
from tests.protocol.kafka_json import from_json
from tests.protocol.values import STYLES, all_messages, structs_within

GOLDEN = Path(__file__).parent / "golden" / "kafka.jsonl.xz"


@cache
def golden() -> dict[str, list[dict[str, Any]]]:
    cases = defaultdict(list)
    for line in lzma.decompress(GOLDEN.read_bytes()).splitlines():
        case = json.loads(line)
        cases[case["message"]].append(case)
    return dict(cases)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_every_version_is_encoded_and_decoded_as_kafka_does(cls: type[Message]) -> None:
    for case in golden()[cls.__name__]:
        version, wanted = case["version"], bytes.fromhex(case["bytes"])
        message = from_json(cls, case["value"], version, version in cls.FLEXIBLE)
        encoded = encode(message, version)
        assert encoded == wanted, f"version {version}: {message}"
        assert decode(cls, bytearray(wanted), version) == message, f"version {version}"


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_every_default_is_kafkas(cls: type[Message]) -> None:
    for version in cls.VERSIONS.versions():
        for part in (cls, *structs_within(cls, version)):
            cases = golden().get(f"{cls.__name__}/{part.__name__}", [])
            wanted = [bytes.fromhex(case["bytes"]) for case in cases if case["version"] == version]
            encoder = compile_encoder(part, version, version in cls.FLEXIBLE)
            if part.__name__ in ("PartitionSnapshot", "PartitionData") and not wanted:
                # no default at all: Kafka's class fails as ours does
                with pytest.raises(ValueError, match="must not be None"):
                    encoder(part(), bytearray())
                continue
            pieces, _ = encoder(part(), bytearray())
            assert pieces == wanted, f"{part.__name__} version {version}"


def test_the_golden_bytes_miss_no_message_and_no_version() -> None:
    there = {(name, case["version"]) for name, cases in golden().items() for case in cases if "/" not in name}
    wanted = {(cls.__name__, version) for cls in all_messages() for version in cls.VERSIONS.versions()}
    assert there == wanted
    assert sum(map(len, golden().values())) >= len(wanted) * len(STYLES)


def test_every_module_of_messages_is_covered() -> None:
    modules = {path.stem for path in (Path(__file__).parents[2] / "src/odradek/protocol/messages").glob("*.py")} - {
        "__init__",
        "index",
    }
    assert {cls.__module__.rpartition(".")[2] for cls in all_messages()} == modules
