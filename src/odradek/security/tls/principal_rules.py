"""`ssl.principal.mapping.rules`: how the distinguished name of a certificate becomes the name of a principal (KIP-371).

A rule is DEFAULT, the name as it is, or `RULE:pattern/replacement/[L|U]`: a regular expression that matches the whole
name, its replacement with `$1` for a group, and lower or upper case. The first rule that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_DEFAULT = "DEFAULT"
_RULE = "RULE:"
_REFERENCE = re.compile(r"\\(.)|\$(\d)")
_CASES: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


class NoMatchingRuleError(ValueError):
    """No rule matches a name: its connection is not authenticated."""


@dataclass(frozen=True, slots=True)
class PrincipalRule:
    """One rule; `pattern` is None for DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The name of the principal, or None where the rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None

        def resolve(reference: re.Match[str]) -> str:
            escaped, group = reference.groups()
            return escaped if escaped is not None else (match[int(group)] or "")

        return _CASES[self.case](_REFERENCE.sub(resolve, self.replacement))


@dataclass(frozen=True, slots=True)
class PrincipalRules:
    """All rules, in order."""

    rules: tuple[PrincipalRule, ...] = (PrincipalRule(),)

    def name_of(self, distinguished_name: str) -> str:
        """
        Raises:
            NoMatchingRuleError.
        """
        for rule in self.rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"ssl.principal.mapping.rules has no rule for {distinguished_name!r}")


def parse_principal_rules(text: str) -> PrincipalRules:
    """
    Raises:
        ValueError: the error; the caller adds the key.
    """
    rules = []
    rest = text.strip() or _DEFAULT
    while rest:
        rule, rest = _parse_rule(rest)
        rules.append(rule)
        rest = rest.lstrip()
        if rest and not rest.startswith(","):
            raise ValueError(f"rules are separated by commas: {rest!r}")
        rest = rest[1:].lstrip()
    return PrincipalRules(tuple(rules))


def _parse_rule(text: str) -> tuple[PrincipalRule, str]:
    """The first rule of a text, and the rest."""
    if text.startswith(_DEFAULT):
        return PrincipalRule(), text[len(_DEFAULT) :]
    if not text.startswith(_RULE):
        raise ValueError(f"a rule is DEFAULT or RULE:pattern/replacement/[L|U], not {text!r}")
    pattern, text = _until_slash(text[len(_RULE) :])
    replacement, text = _until_slash(text)
    case = text[0] if text[:1] in ("L", "U") else ""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    references = [int(group) for _, group in _REFERENCE.findall(replacement) if group]
    if any(each > compiled.groups for each in references):
        raise ValueError(f"{replacement!r} names a group that {pattern!r} does not have")
    return PrincipalRule(compiled, replacement, case), text[len(case) :]


def _until_slash(text: str) -> tuple[str, str]:
    """The text before the first slash without a backslash before it, and the text after it."""
    position = 0
    while position < len(text):
        if text[position] == "/":
            return text[:position], text[position + 1 :]
        position += 2 if text[position] == "\\" else 1
    raise ValueError("a rule ends with a slash: RULE:pattern/replacement/")
