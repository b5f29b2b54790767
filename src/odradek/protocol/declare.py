"""The vocabulary in which `protocol/messages/` declares Kafka's messages: one class for all versions of a message.

A field is one line: its Python type, its wire type, the versions that carry it, and where they matter the versions in
which it may be null, its default, its tag and whether a version without it may drop it in silence. `codec` compiles an
encoder and a decoder from these lines for a version at its first use. Nothing is compiled at import: even `__init__`
is written at the first call, because a broker imports some four hundred of these classes and uses a tenth.

Version ranges are Kafka's: "3" one version, "3-5" inclusive, "3+" from there on, "" never.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, dataclass_transform
from uuid import UUID

NIL_UUID: Final = UUID(int=0)


class _Unset:
    """The type of `UNSET`, which stands for a default that is made when it is first looked at."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __copy__(self) -> _Unset:
        return self

    def __deepcopy__(self, memo: object) -> _Unset:
        return self

    def __reduce__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()


class VersionRange(NamedTuple):
    """Versions from `first` to `last`, both inclusive; empty where `last` is below `first`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def versions(self) -> Iterator[int]:
        """Every version of a closed range, ascending."""
        return iter(range(self.first, self.last + 1))


NO_VERSIONS: Final = VersionRange(0, -1)
LAST_VERSION: Final = 0x7FFF


def parse_versions(text: str) -> VersionRange:
    """Read Kafka's notation of a version range; "" and "none" are the empty range."""
    if text in ("", "none"):
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), LAST_VERSION)
    first, dash, last = text.partition("-")
    return VersionRange(int(first), int(last if dash else first))


class FieldSpec:
    """One declared field.

    `wire_type` is "int8" .. "int64", "uint16", "uint32", "float64", "bool", "string", "uuid", "bytes", "records",
    "struct" or "array"; `element` is the struct's class, or for an array its element's wire type or class.
    """

    __slots__ = (
        "default",
        "element",
        "flexible",
        "ignorable",
        "name",
        "nullable",
        "tag",
        "tagged",
        "versions",
        "wire_type",
    )

    def __init__(
        self,
        wire_type: str,
        element: Any,
        versions: str,
        default: Any,
        nullable: str,
        tag: int | None,
        tagged: str,
        ignorable: bool,
        flexible: str | None,
    ) -> None:
        self.name = ""
        self.wire_type = wire_type
        self.element = element
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged or (versions if tag is not None else "")
        self.ignorable = ignorable
        self.flexible = flexible

    def is_lazy(self) -> bool:
        """Whether the default is a struct, made when it is first looked at."""
        return self.wire_type == "struct" and self.default is UNSET

    def new_default(self) -> Any:
        """A default that the caller may keep and change."""
        if self.wire_type == "struct":
            return self.element() if self.default is UNSET else self.default
        if self.wire_type == "array":
            return [] if self.default is UNSET else self.default
        return self.default


def _scalar(wire_type: str, zero: Any) -> Callable[..., Any]:
    def declare(
        versions: str,
        *,
        default: Any = zero,
        nullable: str = "",
        tag: int | None = None,
        tagged: str = "",
        ignorable: bool = False,
        flexible: str | None = None,
    ) -> Any:
        return FieldSpec(wire_type, None, versions, default, nullable, tag, tagged, ignorable, flexible)

    declare.__name__ = wire_type
    declare.__doc__ = f"Declare a field of type {wire_type}; see the module for the arguments."
    return declare


int8 = _scalar("int8", 0)
int16 = _scalar("int16", 0)
int32 = _scalar("int32", 0)
int64 = _scalar("int64", 0)
uint16 = _scalar("uint16", 0)
uint32 = _scalar("uint32", 0)
float64 = _scalar("float64", 0.0)
boolean = _scalar("bool", False)
string = _scalar("string", "")
uuid = _scalar("uuid", NIL_UUID)
binary = _scalar("bytes", b"")
batches = _scalar("records", None)


def struct(
    element: type[Message],
    versions: str,
    *,
    default: Any = UNSET,
    nullable: str = "",
    tag: int | None = None,
    tagged: str = "",
    ignorable: bool = False,
) -> Any:
    """Declare a field that is one `element`; its default is an `element` of defaults, or None."""
    return FieldSpec("struct", element, versions, default, nullable, tag, tagged, ignorable, None)


def array(
    element: type[Message] | str,
    versions: str,
    *,
    default: Any = UNSET,
    nullable: str = "",
    tag: int | None = None,
    tagged: str = "",
    ignorable: bool = False,
) -> Any:
    """Declare a list of structs of one class, or of one wire type ("int32", "string", ...); its default is empty."""
    return FieldSpec("array", element, versions, default, nullable, tag, tagged, ignorable, None)


class _LazyStruct:
    """A struct field whose default is made when it is read: most answers never look at theirs."""

    __slots__ = ("element", "slot")

    def __init__(self, slot: str, element: Any) -> None:
        self.slot = slot
        self.element = element

    def __get__(self, message: Any, owner: Any) -> Any:
        if message is None:
            return self
        value = getattr(message, self.slot)
        if value is UNSET:
            value = self.element()
            setattr(message, self.slot, value)
        return value

    def __set__(self, message: Any, value: Any) -> None:
        setattr(message, self.slot, value)


class _DataclassFields:
    """Answers `dataclasses.fields`, `replace` and `asdict` for a message without paying for them at import."""

    def __get__(self, message: Any, owner: Any) -> Any:
        names = [*(spec.name for spec in owner.FIELDS), "unknown_tagged_fields"]
        template: Any = dataclasses.make_dataclass(
            owner.__name__, [(name, Any, dataclasses.field(default=None, kw_only=True)) for name in names]
        )
        return template.__dataclass_fields__


@dataclass_transform(kw_only_default=True)
class MessageType(type):
    """Makes a class of declared fields a slotted class; keywords of the class statement describe a whole message."""

    FIELDS: tuple[FieldSpec, ...]

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        kind: str = "struct",
        key: int | None = None,
        versions: str = "",
        flexible: str = "",
    ) -> MessageType:
        if not bases:
            del namespace["unknown_tagged_fields"]  # a default for the type checker alone: the slot takes its place
            namespace["__slots__"] = ("unknown_tagged_fields",)
            return super().__new__(cls, name, bases, namespace)
        fields: list[FieldSpec] = []
        slots: list[str] = []
        kept: dict[str, Any] = {}
        for field_name, value in namespace.items():
            if type(value) is not FieldSpec:
                kept[field_name] = value
                continue
            value.name = field_name
            fields.append(value)
            if value.is_lazy():
                slots.append("_" + field_name)
                kept[field_name] = _LazyStruct("_" + field_name, value.element)
            else:
                slots.append(field_name)
        kept["__slots__"] = tuple(slots)
        kept["FIELDS"] = tuple(fields)
        kept["KIND"] = kind
        kept["KEY"] = key
        kept["VERSIONS"] = parse_versions(versions)
        kept["FLEXIBLE"] = parse_versions(flexible)
        kept["ENCODERS"] = {}
        kept["DECODERS"] = {}
        kept["STEP_ENCODERS"] = {}
        kept["STEP_DECODERS"] = {}
        return super().__new__(cls, name, bases, kept)


class Message(metaclass=MessageType):
    """The base of every message and of every struct within one.

    Equality compares all fields, and `unknown_tagged_fields`: (tag, raw bytes) of tagged fields that a newer peer sent
    and that we do not know, kept so that an encoded copy loses nothing.
    """

    __hash__ = None  # type: ignore[assignment]  # mutable: no place in a set

    KIND: ClassVar[str]
    KEY: ClassVar[int | None]
    VERSIONS: ClassVar[VersionRange]
    FLEXIBLE: ClassVar[VersionRange]
    FIELDS: ClassVar[tuple[FieldSpec, ...]]
    ENCODERS: ClassVar[dict[int, Any]]
    DECODERS: ClassVar[dict[int, Any]]
    STEP_ENCODERS: ClassVar[dict[int, Any]]
    STEP_DECODERS: ClassVar[dict[int, Any]]
    __dataclass_fields__: ClassVar[Any] = _DataclassFields()

    unknown_tagged_fields: Sequence[tuple[int, bytes]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        values = _values_of(type(self))
        return bool(values(self) == values(other))

    def __repr__(self) -> str:
        shown = []
        for spec in self.FIELDS:
            value = getattr(self, "_" + spec.name if spec.is_lazy() else spec.name)
            if value is not UNSET and value != spec.new_default():
                shown.append(f"{spec.name}={'[hidden]' if spec.name in _SECRETS else repr(value)}")
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


# Fields of messages that are shown in no repr, which may get into a log or a traceback.
_SECRETS = frozenset({"auth_bytes", "hmac", "salt", "salted_password", "server_key", "stored_key"})

_GETTERS: dict[type, Callable[[Any], Any]] = {}


def _values_of(cls: type[Message]) -> Callable[[Any], Any]:
    getter = _GETTERS.get(cls)
    if getter is None:
        names = [spec.name for spec in cls.FIELDS]
        getter = _GETTERS[cls] = attrgetter("unknown_tagged_fields", *names) if names else attrgetter("FIELDS")
    return getter


def _first_init(self: Message, **values: Any) -> None:
    """Write the class's own `__init__`, put it in place, and go on with it."""
    cls = type(self)
    parameters, body = [], []
    scope: dict[str, Any] = {"UNSET": UNSET}
    for spec in cls.FIELDS:
        name = spec.name
        if spec.is_lazy():
            parameters.append(f"{name}=UNSET")
            body.append(f"self._{name} = {name}")
        elif spec.wire_type == "array" and spec.default is UNSET:
            parameters.append(f"{name}=UNSET")
            body.append(f"self.{name} = [] if {name} is UNSET else {name}")
        else:
            scope[f"default_{name}"] = spec.default
            parameters.append(f"{name}=default_{name}")
            body.append(f"self.{name} = {name}")
    parameters.append("unknown_tagged_fields=()")
    body.append("self.unknown_tagged_fields = unknown_tagged_fields")
    source = f"def __init__(self, *, {', '.join(parameters)}):\n " + "\n ".join(body)
    exec(source, scope)  # noqa: S102  # the source is made of declared names alone
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init  # type: ignore[method-assign]  # the generated one replaces it
    init(self, **values)


Message.__init__ = _first_init  # type: ignore[method-assign]  # until a class is used first
