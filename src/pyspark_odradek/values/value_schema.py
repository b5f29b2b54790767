"""The option valueSchema of JSON as a struct of Spark, read without Spark's own parser.

Spark asks for a source's columns in a Python process that has no session, and what its parser says of a whole row of
columns names none of the user's. Three spellings are known: columns as SQL has them (`id LONG, name STRING`), what
`simpleString()` gives (`struct<id:bigint,name:string>`) and what `json()` gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_odradek.errors import OptionError

_PLAIN: dict[str, DataType] = {
    "BOOLEAN": BooleanType(),
    "BYTE": ByteType(),
    "TINYINT": ByteType(),
    "SHORT": ShortType(),
    "SMALLINT": ShortType(),
    "INT": IntegerType(),
    "INTEGER": IntegerType(),
    "LONG": LongType(),
    "BIGINT": LongType(),
    "FLOAT": FloatType(),
    "REAL": FloatType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_LTZ": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
}
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_KNOWN = "BOOLEAN, TINYINT, SMALLINT, INT, LONG, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, TIMESTAMP, "
_KNOWN += "TIMESTAMP_NTZ, ARRAY<…>, MAP<STRING, …> and STRUCT<…>"
_TOKEN = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)+`|\w+)|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(?P<sign>[<>(),:]))"
)
MAX_DEPTH = 50


def parse(text: str) -> StructType:
    """The struct that each value becomes.

    Raises:
        OptionError: the text is none of the three spellings, or a type of it is not read from JSON.
    """
    if text.lstrip().startswith("{"):
        try:
            found = StructType.fromJson(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, PySparkException) as error:
            raise OptionError(f"valueSchema is not a schema in Spark's JSON: {str(error)[:200]}") from None
    else:
        found = _Parser(text).whole()
    _check(found, "value")
    return found


class _Parser:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0

    def whole(self) -> StructType:
        if [token.upper() for token in self._tokens[:2]] == ["STRUCT", "<"]:
            found = self._type("value", 0)
            assert isinstance(found, StructType)
        else:
            found = StructType(self._fields("value", 0))
        if self._peek():
            raise OptionError(f"valueSchema: {self._peek()!r} stands where a comma or the end is expected")
        return found

    def _fields(self, where: str, depth: int) -> list[StructField]:
        fields = []
        while True:
            name = self._next_token("the name of a column")
            if name[0] in "<>(),:'\"":
                raise OptionError(f"valueSchema: {name!r} stands where the name of a column is expected")
            if name[0] == "`":
                name = name[1:-1].replace("``", "`")
            if self._peek() == ":":
                self._next += 1
            kind = self._type(f"{where}.{name}", depth)
            nullable = True
            if self._peek().upper() == "NOT":
                self._next += 1
                self._expect("NULL")
                nullable = False
            metadata = {}
            if self._peek().upper() == "COMMENT":
                self._next += 1
                metadata["comment"] = self._text()
            fields.append(StructField(name, kind, nullable, metadata))
            if self._peek() != ",":
                return fields
            self._next += 1

    def _type(self, where: str, depth: int) -> DataType:
        if depth > MAX_DEPTH:
            raise OptionError(f"valueSchema: types lie more than {MAX_DEPTH} deep within each other")
        word = self._next_token(f"the type of {where}").upper()
        if word in _PLAIN:
            return _PLAIN[word]
        if word in _DECIMAL:
            return self._decimal(where)
        if word not in ("ARRAY", "MAP", "STRUCT"):
            raise OptionError(f"valueSchema: {where} has the type {word}, which is not read from JSON; {_KNOWN} are")
        self._expect("<")
        if word == "STRUCT":
            found: DataType = StructType(self._fields(where, depth + 1))
        elif word == "ARRAY":
            found = ArrayType(self._type(f"{where}[]", depth + 1))
        else:
            key = self._type(f"the keys of {where}", depth + 1)
            self._expect(",")
            found = MapType(key, self._type(f"{where}[]", depth + 1))
        self._expect(">")
        return found

    def _decimal(self, where: str) -> DecimalType:
        numbers = [10, 0]
        if self._peek() == "(":
            self._next += 1
            numbers[0] = self._number(where)
            if self._peek() == ",":
                self._next += 1
                numbers[1] = self._number(where)
            self._expect(")")
        if not 0 <= numbers[1] <= numbers[0] or not 1 <= numbers[0] <= 38:
            raise OptionError(
                f"valueSchema: {where} is DECIMAL({numbers[0]}, {numbers[1]}); at most DECIMAL(38, 38) is"
            )
        return DecimalType(*numbers)

    def _number(self, where: str) -> int:
        token = self._next_token(f"a number of {where}")
        if not token.isdecimal() or len(token) > 9:
            raise OptionError(f"valueSchema: {token!r} stands where a number of {where} is expected")
        return int(token)

    def _text(self) -> str:
        token = self._next_token("a text")
        if token[0] not in "'\"":
            raise OptionError(f"valueSchema: {token!r} stands where a text in quotes is expected")
        quote = token[0]
        return re.sub(rf"\\(['\"\\])|{quote}({quote})", r"\1\2", token[1:-1])

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _next_token(self, what: str) -> str:
        token = self._peek()
        if not token:
            raise OptionError(
                f"valueSchema ends where {what} is expected; it is columns such as 'id LONG, name STRING'"
            )
        self._next += 1
        return token

    def _expect(self, wanted: str) -> None:
        token = self._next_token(repr(wanted))
        if token.upper() != wanted:
            raise OptionError(f"valueSchema: {token!r} stands where {wanted!r} is expected")


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].strip()[:20]
            raise OptionError(
                f"valueSchema: {rest!r} is none of its signs; a name that has others is written in `backticks`"
            )
        yield match.group(match.lastgroup or 0)
        position = match.end()


def _check(kind: DataType, where: str) -> None:
    """Raise OptionError for types that values of JSON cannot have."""
    if isinstance(kind, StructType):
        _check_struct(kind, where)
    elif isinstance(kind, ArrayType):
        _refuse_never_null(kind.containsNull, where)
        _check(kind.elementType, f"{where}[]")
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise OptionError(
                f"valueSchema: the keys of {where} are {kind.keyType.simpleString()}; in JSON they are STRING"
            )
        _refuse_never_null(kind.valueContainsNull, where)
        _check(kind.valueType, f"{where}[]")
    elif type(kind) not in {*map(type, _PLAIN.values()), DecimalType}:
        named = kind.simpleString()
        raise OptionError(f"valueSchema: {where} has the type {named}, which is not read from JSON; {_KNOWN} are")


def _check_struct(struct: StructType, where: str) -> None:
    names = [field.name for field in struct]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        raise OptionError(f"valueSchema: {where} has {f'{twice[0]} twice' if twice else 'no columns'}")
    for field in struct:
        if not field.nullable:
            raise OptionError(
                f"valueSchema: {where}.{field.name} is NOT NULL, but a record may lack it: remove NOT NULL"
            )
        _check(field.dataType, f"{where}.{field.name}")


def _refuse_never_null(may_hold_null: bool, where: str) -> None:
    if not may_hold_null:
        raise OptionError(f"valueSchema: {where} is to hold no null, but in a record it may: let it hold them")
