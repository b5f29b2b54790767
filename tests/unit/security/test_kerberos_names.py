"""`sasl.kerberos.principal.to.local.rules`: the name of a principal, and invalid rules."""

from __future__ import annotations

import pytest

from odradek.security.sasl.kerberos_names import NoMatchingRuleError, parse_rules

REALM = "EXAMPLE.COM"


def named(principal: str, *rules: str) -> str:
    return parse_rules(rules, REALM).name_of(principal)


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        ((), "alice@EXAMPLE.COM", "alice"),
        (("DEFAULT",), "kafka/host.example.com@EXAMPLE.COM", "kafka"),
        (("RULE:[1:$1]", "DEFAULT"), "alice@ELSEWHERE", "alice"),
        (("RULE:[2:$1.$2]",), "alice/admin@ELSEWHERE", "alice.admin"),
        (("RULE:[1:$1@$0](.*@ELSEWHERE)s/@.*//",), "alice@ELSEWHERE", "alice"),
        (("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"), "alice@EXAMPLE.COM", "alice"),
        (("RULE:[1:$1]s/a/b/",), "aaa@R", "baa"),
        (("RULE:[1:$1]s/a/b/g",), "aaa@R", "bbb"),
        (("RULE:[1:$1]s/(.)(.*)/$2-$1/",), "alice@R", "lice-a"),
        (("RULE:[1:$1]s/a/\\$/",), "alice@R", "$lice"),
        (("RULE:[1:$1]/L",), "Alice@R", "alice"),
        (("RULE:[1:$1]s/A/a//U",), "Alice@R", "ALICE"),
        (("RULE:[1:user]",), "alice@R", "user"),
        (("RULE:[1:$1]s/^x//",), "alice@R", "alice"),
    ],
)
def test_the_first_rule_that_matches_decides(rules: tuple[str, ...], principal: str, name: str) -> None:
    assert named(principal, *rules) == name


@pytest.mark.parametrize(
    ("rules", "principal", "said"),
    [
        (("DEFAULT",), "alice@ELSEWHERE", "has no rule"),
        (("RULE:[2:$1]",), "alice@EXAMPLE.COM", "has no rule"),
        (("RULE:[1:$1@$0](a.*@R)",), "balice@R", "has no rule"),
        (("RULE:[1:$1@$0]",), "alice@R", "not a simple name"),
        (("RULE:[1:$1]s/alice//",), "alice@R", "not a simple name"),
        (("DEFAULT",), "alice", "none of one or two parts"),
        (("DEFAULT",), "a/b/c@EXAMPLE.COM", "none of one or two parts"),
        (("DEFAULT",), "alice@EXAMPLE.COM@EXAMPLE.COM", "none of one or two parts"),
        (("DEFAULT",), "@EXAMPLE.COM", "none of one or two parts"),
    ],
)
def test_a_principal_without_a_name(rules: tuple[str, ...], principal: str, said: str) -> None:
    with pytest.raises(NoMatchingRuleError, match=said) as error:
        named(principal, *rules)
    assert principal not in str(error.value)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("default", "a rule is DEFAULT or RULE:"),
        ("RULE:[1:$1", "a rule is DEFAULT or RULE:"),
        ("RULE:[1:$1]s/a/b", "a rule is DEFAULT or RULE:"),
        ("RULE:[3:$1]", "one or two parts"),
        ("RULE:[0:$1]", "one or two parts"),
        ("RULE:[1:$2]", "a part that principals of 1 do not have"),
        ("RULE:[1:$1]([)", "not a regular expression"),
        ("RULE:[1:$1]s/a/$1/", "a group that"),
    ],
)
def test_rules_that_cannot_be(rule: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_rules([rule], REALM)
