"""Compiles an encoder for one version of a message.

The encoder is one Python function that appends to a bytearray. Neighbours of fixed width, with a length or count behind
them where it fits one byte, are packed by one struct; structs within are encoded in place. Records are not copied: the
bytearray is cut there and the pieces are passed on.
"""

from __future__ import annotations

import struct
from typing import Any

from odradek.protocol import wire
from odradek.protocol.declare import UNSET, FieldSpec, Message
from odradek.protocol.layout import FIXED, FieldLayout, Layout, Source, Steps, layout_of
from odradek.protocol.records_field import RecordsChunks

_PREFIX_CODES = {"string": "h", "bytes": "i", "records": "i", "array": "i"}


def compile_encoder(cls: type[Message], version: int, flexible: bool, *, in_steps: bool = False) -> Any:
    """`encode(message, out) -> (pieces, total bytes)`; bytes that `out` has already count and come first.

    With `in_steps` it is a generator that yields whenever it has encoded so many elements of lists, and returns that.

    `flexible` is a matter of the whole message: a struct within one does not know it.
    """
    scope: dict[str, Any] = {
        "UNSET": UNSET,
        "RecordsChunks": RecordsChunks,
        "VERSION": version,
        "uvarint": wire.uvarint,
        "unsupported": wire.unsupported,
        "long_string": wire.long_string,
        "null_value": wire.null_value,
        "write_tags": wire.write_tags,
        "write_numbers": wire.write_numbers,
    }
    compiler = _EncoderCompiler(Source(scope), version, flexible, in_steps)
    source = compiler.source
    with source.block("def encode(message, out):"):
        compiler.steps.begin()
        source.line("pieces = []")
        source.line("size = 0")
        compiler.struct(cls, "message")
        compiler.steps.end()
        source.line("pieces.append(out)")
        source.line("return pieces, size + len(out)")
    compiler.tag_functions()
    return source.function("encode")


class _EncoderCompiler:
    def __init__(self, source: Source, version: int, flexible: bool, in_steps: bool) -> None:
        self.source = source
        self.steps = Steps(source, in_steps)
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []  # (struct code, expression) that wait to be packed by one struct
        self.pending_tags: list[tuple[str, Layout]] = []

    def struct(self, cls: type[Message], target: str) -> None:
        """Encode the struct in a local name."""
        source = self.source
        layout = layout_of(cls, self.version, self.flexible)
        self.refuse_absent(layout, target)
        for one in layout.fields:
            self.field(one, f"{target}.{one.slot}")
        if not self.flexible:
            self.flush()
            return
        function = source.name("tags")
        self.pending_tags.append((function, layout))
        conditions = [differs(self.source, one, target) for one in layout.tagged]
        with source.block(f"if {' or '.join([*conditions, f'{target}.unknown_tagged_fields'])}:"):
            self.pack(self.run)
            source.line(f"{function}({target}, out)")
        with source.block("else:"):
            self.pack([*self.run, ("x", "")])
        self.run = []

    def refuse_absent(self, layout: Layout, target: str) -> None:
        """Check that no value is lost that this version cannot carry."""
        lost = [one for one in layout.absent if not one.spec.ignorable]
        if lost:
            names = tuple(one.spec.name for one in lost)
            with self.source.block(f"if {' or '.join(differs(self.source, one, target) for one in lost)}:"):
                self.source.line(f"unsupported({target}, VERSION, {names!r})")

    def pack(self, run: list[tuple[str, str]]) -> None:
        """Append values by one struct; nothing is remembered."""
        if not run:
            return
        code = ">" + "".join(code for code, _ in run)
        values = [value for _, value in run if value]
        if code == ">x":
            self.source.line("out.append(0)")
        elif code == ">B":
            self.source.line(f"out.append({values[0]})")
        else:
            packer = self.source.constant("pack", struct.Struct(code).pack)
            self.source.line(f"out += {packer}({', '.join(values)})")

    def flush(self) -> None:
        """Append the run."""
        self.pack(self.run)
        self.run = []

    def field(self, one: FieldLayout, value: str) -> None:
        """Encode one field."""
        spec = one.spec
        if spec.wire_type == "uuid":
            self.run.append(("16s", f"{value}.bytes"))
        elif spec.wire_type in FIXED:
            self.run.append((FIXED[spec.wire_type][0], value))
        elif spec.wire_type == "struct":
            self.nested(one, value)
        elif spec.wire_type == "array":
            self.array(one, value)
        elif spec.wire_type == "records":
            self.records(one, value)
        else:
            self.counted(spec.wire_type, one.flexible, one.nullable, one.label, value)

    def prefix(self, count: str, wire_type: str, flexible: bool) -> None:
        """Append the run and a length or count; a compact one is given plus one."""
        if not flexible:
            self.run.append((_PREFIX_CODES[wire_type], count))
            self.flush()
            return
        with self.source.block(f"if {count} < 128:"):
            self.pack([*self.run, ("B", count)])
        with self.source.block("else:"):
            self.flush()
            self.source.line(f"out += uvarint({count})")

    def counted(self, wire_type: str, flexible: bool, nullable: bool, label: str, value: str) -> None:
        """A string or bytes."""
        source = self.source
        raw, count = source.name("raw"), source.name("n")
        source.line(f"{raw} = {value}")
        with source.block(f"if {raw} is None:"):
            if nullable:
                source.line(f"{raw} = b''")
                source.line(f"{count} = {0 if flexible else -1}")
            else:
                source.line(f"null_value({label!r})")
        with source.block("else:"):
            if wire_type == "string":
                source.line(f"{raw} = {raw}.encode()")
            source.line(f"{count} = len({raw}){' + 1' if flexible else ''}")
            if wire_type == "string":
                with source.block(f"if {count} > {wire.MAX_STRING_BYTES + (1 if flexible else 0)}:"):
                    source.line(f"long_string({label!r}, len({raw}))")
        self.prefix(count, wire_type, flexible)
        source.line(f"out += {raw}")

    def records(self, one: FieldLayout, value: str) -> None:
        """Records: cut `out` here and pass the pieces on."""
        source = self.source
        held, count = source.name("held"), source.name("n")
        source.line(f"{held} = {value}")
        with source.block(f"if {held} is None:"):
            source.line(f"{count} = -1" if one.nullable else f"null_value({one.label!r})")
        with source.block(f"elif type({held}) is RecordsChunks:"):
            source.line(f"{count} = {held}.size_bytes")
        with source.block("else:"):
            source.line(f"{count} = len({held})")
        written = count
        if one.flexible:
            written = source.name("n")
            source.line(f"{written} = {count} + 1")
        self.prefix(written, "records", one.flexible)
        with source.block(f"if {count} > 0:"):
            source.line(f"size += len(out) + {count}")
            source.line("pieces.append(out)")
            source.line("out = bytearray()")
            with source.block(f"if type({held}) is RecordsChunks:"):
                source.line(f"pieces.extend({held}.chunks)")
            with source.block("else:"):
                source.line(f"pieces.append({held})")

    def nested(self, one: FieldLayout, value: str) -> None:
        """A struct within; a nullable one has a byte before it: 1, for null -1 (KIP-893), or 0 in a tagged field."""
        source, spec = self.source, one.spec
        inner = source.name("s")
        self.flush()
        source.line(f"{inner} = {value}")
        if spec.is_lazy():
            with source.block(f"if {inner} is UNSET:"):
                source.line(f"{inner} = {default_struct(source, spec)}")
        if not one.nullable:
            with source.block(f"if {inner} is None:"):
                source.line(f"null_value({one.label!r})")
            self.struct(spec.element, inner)
            return
        with source.block(f"if {inner} is None:"):
            source.line(f"out.append({0 if one.is_tagged else 255})")
        with source.block("else:"):
            source.line("out.append(1)")
            self.struct(spec.element, inner)

    def array(self, one: FieldLayout, value: str) -> None:
        """A list."""
        source, spec = self.source, one.spec
        items, count = source.name("items"), source.name("n")
        source.line(f"{items} = {value}")
        with source.block(f"if {items} is None:"):
            if one.nullable:
                source.line(f"{items} = ()")
                source.line(f"{count} = {0 if one.flexible else -1}")
            else:
                source.line(f"null_value({one.label!r})")
        with source.block("else:"):
            source.line(f"{count} = len({items}){' + 1' if one.flexible else ''}")
        self.prefix(count, "array", one.flexible)
        if isinstance(spec.element, str) and spec.element in FIXED and spec.element != "uuid":
            with source.block(f"if {items}:"):
                source.line(f"write_numbers(out, {items}, {FIXED[spec.element][0]!r})")
            return
        item = source.name("e")
        with source.block(f"for {item} in {items}:"):
            if spec.element == "uuid":
                source.line(f"out += {item}.bytes")
            elif isinstance(spec.element, str):
                self.counted(spec.element, one.flexible, False, one.label, item)
            else:
                self.struct(spec.element, item)
            self.steps.after_element()

    def tag_functions(self) -> None:
        """Write the functions that encode tagged fields; they may in turn ask for more."""
        self.steps.enabled = False  # a tagged field is small, or is encoded in one step
        while self.pending_tags:
            name, layout = self.pending_tags.pop()
            with self.source.block(f"def {name}(message, section):"):
                self.tag_function(layout)

    def tag_function(self, layout: Layout) -> None:
        source = self.source
        source.line("known = []")
        for one in layout.tagged:
            spec = one.spec
            condition = differs(source, one, "message")
            if spec.is_lazy():
                condition += f" and message.{one.slot} != {default_struct(source, spec)}"
            elif spec.wire_type == "uuid":
                condition += f" and message.{one.slot} != {source.constant('D', spec.default)}"
            with source.block(f"if {condition}:"):
                source.line("out = bytearray()")
                self.field(one, f"message.{one.slot}")
                self.flush()
                source.line(f"known.append(({spec.tag}, out))")
        source.line(f"write_tags(section, {layout.cls.__name__!r}, known, message.unknown_tagged_fields)")


def default_struct(source: Source, spec: FieldSpec) -> str:
    """A name for a struct of defaults, to compare with and to encode; never handed out."""
    return source.constant("D", spec.element())


def differs(source: Source, one: FieldLayout, target: str) -> str:
    """A cheap condition that holds whenever a field may differ from its default; its users must compare."""
    spec, value = one.spec, f"{target}.{one.slot}"
    if spec.is_lazy():
        return f"{value} is not UNSET"
    if spec.default is None:
        return f"{value} is not None"
    if spec.default is UNSET:
        return f"({value} or {value} is None)" if spec.nullable else value
    if spec.wire_type == "uuid":
        return f"{value} is not {source.constant('D', spec.default)}"
    if spec.wire_type == "bool":
        return f"not {value}" if spec.default else value
    return f"{value} != {spec.default!r}"
