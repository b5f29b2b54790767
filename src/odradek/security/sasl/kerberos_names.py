"""`sasl.kerberos.principal.to.local.rules`: how a Kerberos principal becomes the name of a user.

A rule is DEFAULT, the first part of a principal of the default realm, or
`RULE:[n:format](regexp)s/pattern/replacement/g/L`: for principals of n parts, `format` with `$0` for the realm and `$1`
on for the parts, if `regexp` matches all of it, with `pattern` replaced, in lower (L) or upper (U) case. The first rule
that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

KEY = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL = re.compile(r"(?P<first>[^/@]+)(?:/(?P<second>[^/@]+))?@(?P<realm>[^/@]+)")
_RULE = re.compile(
    r"RULE:\[(?P<parts>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PLACE = re.compile(r"\$(\d)")
_REFERENCE = re.compile(r"\\(.)|\$(\d)")


class NoMatchingRuleError(ValueError):
    """No rule matches a principal; the text holds nothing of it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `parts` is 0 for DEFAULT."""

    parts: int = 0
    format: str = ""
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    replaces_all: bool = False
    case: str = ""

    def apply(self, realm: str, parts: Sequence[str], default_realm: str) -> str | None:
        """The name, or None where the rule does not match."""
        if not self.parts:
            return parts[0] if realm == default_realm else None
        if len(parts) != self.parts:
            return None
        values = (realm, *parts)
        name = _PLACE.sub(lambda place: values[int(place[1])], self.format)
        if self.match is not None and self.match.fullmatch(name) is None:
            return None
        if self.pattern is not None:
            name = self.pattern.sub(self._replaced, name, count=0 if self.replaces_all else 1)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)

    def _replaced(self, found: re.Match[str]) -> str:
        def resolve(reference: re.Match[str]) -> str:
            escaped, group = reference.groups()
            return escaped if escaped is not None else (found[int(group)] or "")

        return _REFERENCE.sub(resolve, self.replacement)


@dataclass(frozen=True, slots=True)
class KerberosNames:
    """All rules, in order."""

    default_realm: str = ""
    rules: tuple[Rule, ...] = (Rule(),)

    def name_of(self, principal: str) -> str:
        """
        Raises:
            NoMatchingRuleError: no rule matches, or the result still has a / or @.
        """
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise NoMatchingRuleError("the client's principal is none of one or two parts and a realm")
        parts = [each for each in (found["first"], found["second"]) if each is not None]
        for rule in self.rules:
            name = rule.apply(found["realm"], parts, self.default_realm)
            if name is None:
                continue
            if not name or "/" in name or "@" in name:
                raise NoMatchingRuleError(f"what {KEY} makes of the client's principal is not a simple name")
            return name
        raise NoMatchingRuleError(f"{KEY} has no rule for the client's principal")


def parse_rules(rules: Sequence[str], default_realm: str) -> KerberosNames:
    """
    Raises:
        ValueError: the error; the caller adds the key.
    """
    return KerberosNames(default_realm, tuple(_parse(each.strip()) for each in rules) or (Rule(),))


def _parse(text: str) -> Rule:
    if text == "DEFAULT":
        return Rule()
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"a rule is DEFAULT or RULE:[n:format](regexp)s/pattern/replacement/g/L, not {text!r}")
    parts = int(found["parts"])
    if not 1 <= parts <= 2:
        raise ValueError(f"{text!r}: principals have one or two parts")
    if any(int(each) > parts for each in _PLACE.findall(found["format"])):
        raise ValueError(f"{text!r} names a part that principals of {parts} do not have")
    match, pattern = _compiled(found["match"]), _compiled(found["pattern"])
    replacement = found["replacement"] or ""
    groups = 0 if pattern is None else pattern.groups
    if any(int(group) > groups for _, group in _REFERENCE.findall(replacement) if group):
        raise ValueError(f"{replacement!r} names a group that {found['pattern']!r} does not have")
    return Rule(parts, found["format"], match, pattern, replacement, found["all"] is not None, found["case"] or "")


def _compiled(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
