"""Turns one message definition into the source of its module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Definition = dict[str, Any]

SPECIFIERS = {"bool": "boolean", "bytes": "binary", "records": "batches"}
PYTHON_TYPES = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "records": "Records",
    "string": "str",
    "uuid": "UUID",
}
KINDS = {
    "request": "Request",
    "response": "Response",
    "header": "Header",
    "metadata": "Record of the metadata log, type",
    "coordinator-key": "Key of a coordinator's record, type",
    "coordinator-value": "Value of a coordinator's record, type",
    "data": "Data",
}


def snake_case(name: str) -> str:
    """Kafka's CamelCase or camelCase name as snake_case; a run of capitals is one word."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def structs_of(definition: Definition) -> Iterator[tuple[str, list[Definition]]]:
    """(name, fields) of every struct, each after those that it holds."""
    common = {struct["name"]: struct for struct in definition.get("commonStructs", [])}
    done: set[str] = set()

    def visit(fields: list[Definition]) -> Iterator[tuple[str, list[Definition]]]:
        for field in fields:
            name = field["type"].removeprefix("[]")
            nested = field.get("fields") or (common[name]["fields"] if name in common else None)
            if nested is None or name in done:
                continue
            done.add(name)
            yield from visit(nested)
            yield name, nested

    yield from visit(definition["fields"])


def module_source(definition: Definition) -> str:
    """The whole module of one message."""
    name, kind = definition["name"], definition["type"]
    classes = [class_source(struct, fields, "Message", f"Within {name}.") for struct, fields in structs_of(definition)]
    versions, flexible = definition["validVersions"], definition.get("flexibleVersions", "none")
    key = definition.get("apiKey")
    about = f"{KINDS[kind]}{f' {key}' if key is not None else ''}, versions {versions}, "
    about += "never flexible." if flexible == "none" else f"flexible {flexible}."
    listeners = definition.get("listeners")
    if kind in ("request", "response"):
        about = about.replace(KINDS[kind], f"{KINDS[kind]} of API", 1)
    if listeners:
        about = about[:-1] + f"; listeners: {', '.join(listeners)}."
    arguments = f'Message, kind="{kind}", '
    if key is not None:
        arguments += f"key={key}, "
    arguments += f'versions="{versions}"'
    if flexible != "none":
        arguments += f', flexible="{flexible}"'
    classes.append(class_source(name, definition["fields"], arguments, about))
    body = "\n\n\n".join(classes)
    return (
        f'"""{name}, declared for every version; generated from Kafka\'s definition."""\n\n{imports(body)}\n\n{body}\n'
    )


def imports(body: str) -> str:
    """The import lines that these classes need."""
    lines = ["from __future__ import annotations\n"]
    if re.search(r"\bUUID\b", body):
        lines.append("from uuid import UUID\n")
    words = set(re.findall(r" = (\w+)\(", body)) | {"Message"}
    if re.search(r"\bRecords\b", body):
        lines.append(f"from odradek.protocol.declare import {', '.join(sorted(words, key=import_order))}")
        lines.append("from odradek.protocol.records_field import Records\n")
    else:
        lines.append(f"from odradek.protocol.declare import {', '.join(sorted(words, key=import_order))}\n")
    return "\n".join(lines)


def import_order(word: str) -> tuple[bool, str, int]:
    """Classes before functions and int8 before int16, as the linter sorts them."""
    letters = word.rstrip("0123456789")
    return word[0].islower(), letters, int(word[len(letters) :] or 0)


def class_source(name: str, fields: list[Definition], arguments: str, about: str) -> str:
    """One class statement."""
    lines = [f"class {name}({arguments}):", f'    """{about}"""']
    if fields:
        lines.append("")
    lines += [f"    {field_source(field)}" for field in fields]
    return "\n".join(lines)


def field_source(field: Definition) -> str:
    """One line: `name: type = specifier(versions, ...)`."""
    wire_type = field["type"]
    is_array = wire_type.startswith("[]")
    element = wire_type.removeprefix("[]")
    is_struct = element[0].isupper()
    tagged = field.get("taggedVersions", "")
    versions = field.get("versions") or tagged
    nullable = field.get("nullableVersions", "")
    python_type = element if is_struct else PYTHON_TYPES.get(element, "int")
    if is_array:
        python_type = f"list[{python_type}]"
        arguments = [element if is_struct else f'"{element}"']
        specifier = "array"
    elif is_struct:
        arguments, specifier = [element], "struct"
    else:
        arguments, specifier = [], SPECIFIERS.get(element, element)
    arguments.append(f'"{versions}"')
    default = default_source(wire_type, field)
    if default == "None" or element == "records":
        nullable_type = python_type if element == "records" else f"{python_type} | None"
    else:
        nullable_type = f"{python_type} | None" if nullable and nullable != "none" else python_type
    if default is not None:
        arguments.append(f"default={default}")
    if nullable and nullable != "none":
        arguments.append(f'nullable="{nullable}"')
    if field.get("tag") is not None:
        arguments.append(f"tag={field['tag']}")
        if tagged != versions:
            arguments.append(f'tagged="{tagged}"')
    if field.get("ignorable"):
        arguments.append("ignorable=True")
    if "flexibleVersions" in field:
        arguments.append(f'flexible="{field["flexibleVersions"]}"')
    return f"{snake_case(field['name'])}: {nullable_type} = {specifier}({', '.join(arguments)})"


def default_source(wire_type: str, field: Definition) -> str | None:
    """The default as Python, or None where it is the type's zero."""
    given = field.get("default")
    text = "" if given is None else str(given).strip()
    if text == "null":
        return None if wire_type == "records" else "None"
    if text == "":
        return None
    if wire_type == "bool":
        return "True" if text.lower() == "true" else None
    if wire_type.startswith(("int", "uint")):
        number = int(text, 0)
        return None if number == 0 else str(number)
    if wire_type == "string":
        return f'"{text}"'
    raise ValueError(f"no default {text!r} for a field of type {wire_type}")
