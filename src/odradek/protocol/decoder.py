"""Compiles a decoder for one version of a message.

The decoder is one Python function. Neighbours of fixed width, with the length or count behind them and the count of
tagged fields at a struct's end, are read by one struct. Structs within are decoded in place, so a Fetch of a hundred
partitions calls no function of ours for any of them. Rare parts (tagged fields, long varints, errors) are calls.

A compiled decoder raises ProtocolError, or IndexError, struct.error or UnicodeDecodeError, which `codec` turns into it.
"""

from __future__ import annotations

import struct
from typing import Any

from odradek.protocol import wire
from odradek.protocol.declare import UNSET, FieldSpec, Message
from odradek.protocol.layout import (
    FIXED,
    FieldLayout,
    Layout,
    Source,
    Steps,
    default_is_empty_list,
    layout_of,
    prefix_code,
    smallest_element,
)

_UUIDS = wire.UuidCache()


def compile_decoder(cls: type[Message], version: int, *, in_steps: bool = False) -> Any:
    """`decode(buf, view, pos, end) -> (message, position behind it)`.

    With `in_steps` it is a generator that yields whenever it has decoded so many elements of lists, and returns that.

    `buf` is indexed for everything but records, which are slices of `view`: the caller may copy a small frame to bytes,
    whose slices are cheaper, and still hand out records that lie in its own buffer.
    """
    scope: dict[str, Any] = {
        "new": object.__new__,
        "UNSET": UNSET,
        "uuids": _UUIDS,
        "long_uvarint": wire.long_uvarint,
        "read_uvarint": wire.read_uvarint,
        "refuse_null": wire.refuse_null,
        "refuse_length": wire.refuse_length,
        "refuse_count": wire.refuse_count,
        "refuse_tag": wire.refuse_tag,
        "read_uuids": wire.read_uuids,
        "read_numbers": wire.read_numbers,
    }
    compiler = _DecoderCompiler(Source(scope), version, version in cls.FLEXIBLE, in_steps)
    source = compiler.source
    with source.block("def decode(buf, view, pos, end):"):
        compiler.steps.begin()
        compiler.struct(cls, "message")
        compiler.steps.end()
        source.line("return message, pos")
    compiler.tag_functions()
    return source.function("decode")


class _DecoderCompiler:
    def __init__(self, source: Source, version: int, flexible: bool, in_steps: bool) -> None:
        self.source = source
        self.steps = Steps(source, in_steps)
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []  # (struct code, target) that wait to be read by one struct
        self.later: list[str] = []  # lines that convert what the run has read
        self.pending_tags: list[tuple[str, Layout]] = []

    def struct(self, cls: type[Message], target: str) -> None:
        """Decode one struct into a local name."""
        source = self.source
        layout = layout_of(cls, self.version, self.flexible)
        source.line(f"{target} = new({source.constant('C', cls)})")
        for one in layout.fields:
            self.field(one, f"{target}.{one.slot}")
        if self.flexible:
            count = source.name("n")
            self.run.append(("B", count))
            self.flush()
            for one in layout.tagged:
                self.default(one, target)
            with source.block(f"if {count}:"):
                function = source.name("tags")
                self.pending_tags.append((function, layout))
                source.line(f"pos = {function}({target}, buf, view, pos, end, {count})")
            with source.block("else:"):
                source.line(f"{target}.unknown_tagged_fields = ()")
        else:
            self.flush()
            source.line(f"{target}.unknown_tagged_fields = ()")
        for one in layout.absent:
            self.default(one, target)

    def default(self, one: FieldLayout, target: str) -> None:
        """Set an absent field to its default."""
        spec = one.spec
        if spec.is_lazy():
            value = "UNSET"
        elif default_is_empty_list(spec):
            value = "[]"
        elif spec.default is None or isinstance(spec.default, bool | int | str | bytes):
            value = repr(spec.default)
        else:
            value = self.source.constant("D", spec.default)
        self.source.line(f"{target}.{one.slot} = {value}")

    def field(self, one: FieldLayout, target: str) -> None:
        """Decode one field into an attribute."""
        spec = one.spec
        if spec.wire_type in FIXED:
            self.fixed(spec.wire_type, target)
        elif spec.wire_type == "struct":
            self.nested(one, target)
        elif spec.wire_type == "array":
            self.array(one, target)
        else:
            self.counted(spec.wire_type, one.flexible, one.nullable, one.label, target)

    def fixed(self, wire_type: str, target: str) -> None:
        """Add a value of fixed width to the run."""
        if wire_type == "uuid":
            raw = self.source.name("u")
            self.run.append(("16s", raw))
            self.later.append(f"{target} = uuids[{raw}]")
        else:
            self.run.append((FIXED[wire_type][0], target))

    def flush(self) -> None:
        """Read the run by one struct."""
        source = self.source
        if not self.run:
            return
        code = ">" + "".join(code for code, _ in self.run)
        if code == ">B":
            source.line(f"{self.run[0][1]} = buf[pos]")
            source.line("pos += 1")
        else:
            reader = source.constant("unpack", struct.Struct(code).unpack_from)
            source.line(f"{', '.join(target for _, target in self.run)}, = {reader}(buf, pos)")
            source.line(f"pos += {struct.calcsize(code)}")
        for line in self.later:
            source.line(line)
        self.run, self.later = [], []

    def prefix(self, wire_type: str, flexible: bool) -> str:
        """Read a length or count into a local name: as written, or plus one where it is compact."""
        count = self.source.name("n")
        self.run.append((prefix_code(wire_type, flexible), count))
        self.flush()
        if flexible:
            with self.source.block(f"if {count} > 127:"):
                self.source.line(f"{count}, pos = long_uvarint(buf, pos, {count})")
        return count

    def absent_value(self, count: str, flexible: bool, nullable: bool, label: str, target: str) -> str:
        """Open the branches for null; returns the head of the branch for a value."""
        source = self.source
        null = f"{target} = None" if nullable else f"refuse_null({label!r})"
        if flexible:
            with source.block(f"if {count} == 0:"):
                source.line(null)
            return "else:"
        # Kafka reads any negative length as null
        with source.block(f"if {count} < 0:"):
            source.line(null)
        return "else:"

    def counted(self, wire_type: str, flexible: bool, nullable: bool, label: str, target: str) -> None:
        """A string, bytes or records."""
        source = self.source
        count = self.prefix(wire_type, flexible)
        with source.block(self.absent_value(count, flexible, nullable, label, target)):
            stop = source.name("stop")
            length = f"{count} - 1" if flexible else count
            source.line(f"{stop} = pos + {length}")
            limit = f" or {count} > {wire.MAX_STRING_BYTES + 1}" if wire_type == "string" and flexible else ""
            with source.block(f"if {stop} > end{limit}:"):
                source.line(f"refuse_length({label!r}, {length})")
            if wire_type == "string":
                source.line(f"{target} = str(buf[pos:{stop}], 'utf-8')")
            elif wire_type == "bytes":
                source.line(f"{target} = bytes(buf[pos:{stop}])")
            else:
                source.line(f"{target} = view[pos:{stop}]")
            source.line(f"pos = {stop}")

    def nested(self, one: FieldLayout, target: str) -> None:
        """A struct within.

        A nullable one has a signed byte before it, negative for null (KIP-893); in a tagged field Kafka's classes have
        a varint instead, 0 for null.
        """
        source = self.source
        inner = source.name("s")
        if not one.nullable:
            self.flush()
            self.struct(one.spec.element, inner)
            source.line(f"{target} = {inner}")
            return
        if one.is_tagged:
            null = f"{self.prefix('struct', True)} == 0"
        else:
            marker = source.name("n")
            self.run.append(("b", marker))
            self.flush()
            null = f"{marker} < 0"
        with source.block(f"if {null}:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            self.struct(one.spec.element, inner)
            source.line(f"{target} = {inner}")

    def array(self, one: FieldLayout, target: str) -> None:
        """A list; its count is compared with the bytes that remain before anything is allocated."""
        source, spec = self.source, one.spec
        count = self.prefix("array", one.flexible)
        with source.block(self.absent_value(count, one.flexible, one.nullable, one.label, target)):
            if one.flexible:
                source.line(f"{count} -= 1")
            width = smallest_element(spec, self.version, self.flexible)
            with source.block(f"if {count} * {width} > end - pos or {count} > {wire.MAX_ARRAY_ELEMENTS}:"):
                source.line(f"refuse_count({one.label!r}, {count})")
            if spec.element == "uuid":
                source.line(f"{target} = read_uuids(buf, pos, {count}, uuids)")
                source.line(f"pos += {count} * 16")
            elif isinstance(spec.element, str) and spec.element in FIXED:
                code = FIXED[spec.element][0]
                source.line(f"{target} = read_numbers(buf, pos, {count}, {code!r}) if {count} else []")
                source.line(f"pos += {count} * {width}")
            else:
                self.elements(one, spec, count, target)

    def elements(self, one: FieldLayout, spec: FieldSpec, count: str, target: str) -> None:
        """The elements that have no fixed width, one by one."""
        source = self.source
        items, item = source.name("items"), source.name("e")
        source.line(f"{items} = []")
        with source.block(f"for _ in range({count}):"):
            if isinstance(spec.element, str):
                self.counted(spec.element, one.flexible, False, one.label, item)
            else:
                self.struct(spec.element, item)
            source.line(f"{items}.append({item})")
            self.steps.after_element()
        source.line(f"{target} = {items}")

    def tag_functions(self) -> None:
        """Write the functions that decode tagged fields; they may in turn ask for more."""
        self.steps.enabled = False  # a tagged field is small, or is decoded in one step
        while self.pending_tags:
            name, layout = self.pending_tags.pop()
            with self.source.block(f"def {name}(message, buf, view, pos, limit, count):"):
                self.tag_function(layout)

    def tag_function(self, layout: Layout) -> None:
        source, label = self.source, layout.cls.__name__
        with source.block("if count > 127:"):
            source.line("count, pos = long_uvarint(buf, pos, count)")
        with source.block(f"if count * 2 > limit - pos or count > {wire.MAX_ARRAY_ELEMENTS}:"):
            source.line(f"refuse_count({'tagged fields of ' + label!r}, count)")
        source.line("unknown = []")
        source.line("seen = set()")
        with source.block("for _ in range(count):"):
            source.line("tag, pos = read_uvarint(buf, pos)")
            source.line("size, pos = read_uvarint(buf, pos)")
            source.line("end = pos + size")
            with source.block("if end > limit or tag in seen:"):
                source.line(f"refuse_tag({label!r}, tag)")
            source.line("seen.add(tag)")
            word = "if"
            for one in layout.tagged:
                with source.block(f"{word} tag == {one.spec.tag}:"):
                    self.field(one, f"message.{one.slot}")
                    self.flush()
                    with source.block("if pos != end:"):
                        source.line(f"refuse_tag({label!r}, tag)")
                word = "elif"
            if layout.tagged:
                with source.block("else:"):
                    source.line("unknown.append((tag, bytes(buf[pos:end])))")
                    source.line("pos = end")
            else:
                source.line("unknown.append((tag, bytes(buf[pos:end])))")
                source.line("pos = end")
        source.line("message.unknown_tagged_fields = unknown or ()")
        source.line("return pos")
