"""Rules that make principals out of the names in certificates."""

from __future__ import annotations

import pytest

from odradek.security.tls.principal_rules import NoMatchingRuleError, parse_principal_rules

RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    r"DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        (RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES, "cn=duke,ou=JavaSoft,dc=Sun,dc=M", "DUKE@JAVASOFT"),
        (RULES, "OU=JavaSoft,CN=Duke,O=x", "duke"),
        (RULES, "OU=JavaSoft", "OU=JavaSoft"),
        ("", "CN=a", "CN=a"),
        ("DEFAULT", "CN=a", "CN=a"),
        (r"RULE:CN=(.*)/a\/$1\$/", "CN=x", "a/x$"),
        (r"RULE:CN=(\w+)\/(\w+)/$2-$1/ , DEFAULT", "CN=x/y", "y-x"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules: str, name: str, principal: str) -> None:
    assert parse_principal_rules(rules).name_of(name) == principal


def test_a_name_that_no_rule_matches_has_no_principal() -> None:
    with pytest.raises(NoMatchingRuleError, match="no rule for 'O=other'"):
        parse_principal_rules("RULE:CN=(.*)/$1/").name_of("O=other")


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("RULES:a/b/", "a rule is DEFAULT or RULE"),
        ("RULE:a", "ends with a slash"),
        ("RULE:a/b", "ends with a slash"),
        ("RULE:(/b/", "not a regular expression"),
        ("RULE:a{99999999999999999999}/b/", "not a regular expression"),
        ("RULE:" + "(" * 3000 + ")" * 3000 + "/b/", "not a regular expression"),
        ("RULE:a/$1/", "names a group"),
        ("DEFAULT DEFAULT", "separated by commas"),
    ],
)
def test_malformed_principal_rules_are_refused(rules: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_principal_rules(rules)
