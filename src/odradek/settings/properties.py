"""Java's properties syntax, as `server.properties` and every Kafka tool's configuration file has it.

Source: the specification of java.util.Properties.load.
"""

from __future__ import annotations

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties text; the last of two equal keys wins.

    A line is a comment (`#`, `!`), blank, or a key and a value with `=`, `:` or blanks between; a backslash at its end
    continues it on the next line, whose leading blanks do not count.

    Raises:
        ValueError: a malformed unicode escape, with the number of its line.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        try:
            key, value = _split(line)
            found[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return found


def format_properties(values: dict[str, str], *, comment: str = "") -> str:
    """A text that `parse_properties`, and Java, read as these values."""
    lines = [f"#{comment}"] if comment else []
    for key, value in values.items():
        lines.append(f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}")
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines = []
    pending, started = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            started = number
        line = pending + line
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending = line[:-1]
            # An empty continuation still continues.
            if not pending:
                pending = " "
            continue
        pending = ""
        lines.append((started, line.lstrip(_BLANKS)))
    if pending.strip():
        lines.append((started, pending))
    return lines


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line):
        char = line[position]
        if char == "\\":
            position += 2
            continue
        if char in "=:" + _BLANKS:
            break
        position += 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces = []
    position = 0
    while position < len(text):
        char = text[position]
        if char != "\\" or position + 1 == len(text):
            pieces.append(char)
            position += 1
            continue
        escaped = text[position + 1]
        if escaped == "u":
            digits = text[position + 2 : position + 6]
            if len(digits) != 4:
                raise ValueError(f"malformed \\u escape in {text!r}")
            try:
                pieces.append(chr(int(digits, 16)))
            except ValueError:
                raise ValueError(f"malformed \\u escape in {text!r}") from None
            position += 6
            continue
        pieces.append(_ESCAPES.get(escaped, escaped))
        position += 2
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool) -> str:
    pieces = []
    for index, char in enumerate(text):
        if char in "\\#!=:" or (char == " " and (is_key or index == 0)):
            pieces.append("\\" + char)
        elif char in "\t\n\r\f":
            pieces.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        else:
            pieces.append(char)
    return "".join(pieces)
