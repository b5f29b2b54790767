"""The layout of one version of a message on the wire: its fields in order, its tagged fields, its omitted fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from odradek.protocol.declare import UNSET, FieldSpec, Message, parse_versions

# struct codes and widths of the types with a fixed width
FIXED: Final = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "bool": ("?", 1),
    "uuid": ("16s", 16),
}

# How many elements of lists a coder that goes in steps does in one: some milliseconds for the largest ones.
ELEMENTS_PER_STEP: Final = 2000


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """One field in one version; `slot` is the attribute that holds it without making a default."""

    spec: FieldSpec
    slot: str
    nullable: bool
    flexible: bool
    is_tagged: bool

    @property
    def label(self) -> str:
        """The name for messages to people."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Layout:
    """One class in one version."""

    cls: type[Message]
    version: int
    flexible: bool
    fields: list[FieldLayout] = field(default_factory=list)
    tagged: list[FieldLayout] = field(default_factory=list)
    absent: list[FieldLayout] = field(default_factory=list)


def layout_of(cls: type[Message], version: int, flexible: bool) -> Layout:
    """Sort the declared fields of a class into those of one version; tagged ones ascend by tag."""
    layout = Layout(cls, version, flexible)
    for spec in cls.FIELDS:
        slot = f"_{spec.name}" if spec.is_lazy() else spec.name
        nullable = version in parse_versions(spec.nullable)
        compact = flexible and (spec.flexible is None or version in parse_versions(spec.flexible))
        is_tagged = spec.tag is not None and version in parse_versions(spec.tagged)
        one = FieldLayout(spec, slot, nullable, compact, is_tagged)
        if version not in parse_versions(spec.versions):
            layout.absent.append(one)
        elif is_tagged:
            layout.tagged.append(one)
        else:
            layout.fields.append(one)
    layout.tagged.sort(key=lambda one: one.spec.tag or 0)
    return layout


def prefix_code(wire_type: str, flexible: bool) -> str:
    """The struct code of a length or count; a compact one is a varint whose first byte is read so."""
    if flexible:
        return "B"
    return "h" if wire_type == "string" else "i"


def smallest_size(cls: type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes that a struct of this class can take, at least 1."""
    layout = layout_of(cls, version, flexible)
    size = 1 if flexible else 0
    for one in layout.fields:
        spec = one.spec
        if spec.wire_type in FIXED:
            size += FIXED[spec.wire_type][1]
        elif spec.wire_type == "struct":
            size += 1 if one.nullable else smallest_size(spec.element, version, flexible)
        else:
            size += {"B": 1, "h": 2, "i": 4}[prefix_code(spec.wire_type, one.flexible)]
    return max(size, 1)


def smallest_element(spec: FieldSpec, version: int, flexible: bool) -> int:
    """The fewest bytes of one element of an array."""
    if not isinstance(spec.element, str):
        return smallest_size(spec.element, version, flexible)
    if spec.element in FIXED:
        return FIXED[spec.element][1]
    return {"B": 1, "h": 2, "i": 4}[prefix_code(spec.element, flexible)]


def default_is_empty_list(spec: FieldSpec) -> bool:
    """Whether each message needs a list of its own."""
    return spec.wire_type == "array" and spec.default is UNSET


class Source:
    """Python source in the making, with the constants that it names."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.lines: list[str] = []
        self.depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        """Add one line at the present depth."""
        self.lines.append("\t" * self.depth + text)

    def name(self, stem: str) -> str:
        """A name not used before."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """A name for a value; the same object gets the same name."""
        for name, known in self.scope.items():
            if known is value and name.startswith(stem):
                return name
        name = self.name(stem)
        self.scope[name] = value
        return name

    def block(self, head: str) -> _Block:
        """`with source.block("if x:")`: the lines inside are indented."""
        self.line(head)
        return _Block(self)

    def function(self, name: str) -> Any:
        """Compile what was written and return the function of this name."""
        source = "\n".join(self.lines)
        exec(compile(source, f"<compiled {name}>", "exec"), self.scope)  # noqa: S102  # made of declared names alone
        return self.scope[name]


class Steps:
    """The places where a coder that is a generator lets others have their turn: behind so many elements of lists."""

    def __init__(self, source: Source, enabled: bool) -> None:
        self.source = source
        self.enabled = enabled

    def begin(self) -> None:
        """At the head of the function."""
        if self.enabled:
            self.source.line(f"left = {ELEMENTS_PER_STEP}")

    def after_element(self) -> None:
        """Behind one element of a list."""
        if self.enabled:
            self.source.line("left -= 1")
            with self.source.block("if not left:"):
                self.source.line(f"left = {ELEMENTS_PER_STEP}")
                self.source.line("yield")

    def end(self) -> None:
        """Before the function returns; makes a generator of one that has no list."""
        if self.enabled:
            with self.source.block("if left < 0:"):
                self.source.line("yield")


class _Block:
    def __init__(self, source: Source) -> None:
        self.source = source

    def __enter__(self) -> None:
        self.source.depth += 1

    def __exit__(self, *error: object) -> None:
        self.source.depth -= 1
