"""Files of Protocol Buffers in a schema registry: one subject for each, and references for what a file imports.

A registry has a file as text; the descriptor of a file in base64 says the same, and is what is sent and asked for here.
The subject of an imported file is its name in the import, as Confluent's serializers have it by default. Files of
`google/protobuf`, `google/type` and `confluent` are known to registries, and have no reference.
"""

from __future__ import annotations

import base64
import importlib
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError

from pyspark_odradek.errors import OptionError
from pyspark_odradek.values.registry import Reference, RegisteredSchema, Registry

KNOWN = ("google/protobuf/", "google/type/", "confluent/")
_MODULE = re.compile(r"(google/(?:protobuf|type)/[a-z_]+)\.proto")


def register(registry: Registry, subject: str, file: FileDescriptor) -> int:
    """The id of a file in a subject, which gets it, and each file that it imports its own, where they are missing.

    Raises:
        OptionError: the registry does not take one of them.
        ClusterError: the registry refuses, or does not answer.
    """
    return registry.register(subject, _text(file), "protobuf", _references(registry, file, {}))


def _references(registry: Registry, file: FileDescriptor, known: dict[str, Reference]) -> list[Reference]:
    """The subjects of the files that a file imports, which are registered before it."""
    found = [each for each in file.dependencies if not each.name.startswith(KNOWN)]
    for each in found:
        if each.name not in known:
            needed = _references(registry, each, known)
            version = registry.version_of(each.name, _text(each), "protobuf", needed)
            known[each.name] = Reference(each.name, each.name, version)
    return [known[each.name] for each in found]


def _text(file: FileDescriptor) -> str:
    """The file's descriptor without what is not in its text: protoc adds places and the usual names in JSON."""
    found = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(found)
    found.ClearField("source_code_info")
    for each in found.message_type:
        _clear_usual_names(each)
    return base64.b64encode(found.SerializeToString()).decode()


def _clear_usual_names(message: Any) -> None:
    for field in message.field:
        if field.json_name == _usual_name(field.name):
            field.ClearField("json_name")
    for each in message.nested_type:
        _clear_usual_names(each)


def _usual_name(name: str) -> str:
    return re.sub("_+(.?)", lambda found: found[1].upper(), name)


def newest(registry: Registry, subject: str) -> RegisteredSchema | None:
    """The newest file of a subject, as a descriptor set with what it imports; None where there is none.

    Raises:
        OptionError: it is of another format, or incomplete.
        ClusterError: the registry refuses, or does not answer.
    """
    found = registry.latest(subject, "protobuf")
    if found is None:
        return None
    files = descriptor_set(found.schema, found.needed, f"the newest schema of {subject}")
    return RegisteredSchema(found.schema_id, files)


def descriptor_set(text: str, needed: Mapping[str, str], which: str) -> str:
    """A descriptor set in base64 of a registered file and those that it imports, each before the files that do.

    Args:
        text: the file's descriptor, in base64.
        needed: the same of the files that it refers to, by their names.
        which: the file, for errors.
    Raises:
        OptionError: a file is no descriptor, or is missing.
    """
    files = descriptor_pb2.FileDescriptorSet()
    whole = {name: _parsed(each, name, which) for name, each in needed.items()}
    done: set[str] = set()

    def add(file: Any) -> None:
        done.add(file.name)
        for name in file.dependency:
            if name not in done:
                add(whole[name] if name in whole else _of_library(name, which))
        files.file.append(file)

    add(_parsed(text, "", which))
    return base64.b64encode(files.SerializeToString()).decode()


def _parsed(text: str, name: str, which: str) -> Any:
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (DecodeError, ValueError):
        raise OptionError(
            f"the registry gives no descriptor of {which} (format=serialized): give a descriptor set as valueSchema"
        ) from None
    found.name = name or found.name or "value.proto"
    return found


def _of_library(name: str, which: str) -> Any:
    module = _MODULE.fullmatch(name)
    try:
        if module is None:
            raise ImportError
        found = descriptor_pb2.FileDescriptorProto()
        importlib.import_module(f"{module[1].replace('/', '.')}_pb2").DESCRIPTOR.CopyToProto(found)
    except ImportError:
        raise OptionError(
            f"{which} imports {name}, to which it does not refer in the registry: give a descriptor set as valueSchema"
        ) from None
    return found
