"""`odradek acls why`: how brokers decide, by the ACLs of the cluster and the settings of each broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.cli.acl_rules import described
from odradek.cli.connect import Target, administer

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.metadata.model import Acl
    from odradek.security.acl.authorizer import AclDecision

# Operations and types of resources (numbers of `metadata.acls`) that the same operation on the cluster allows as well:
# CREATE and DELETE of topics, DESCRIBE of groups, which a listing of groups asks for.
_ALSO_BY_CLUSTER = {(5, 2), (6, 2), (8, 3)}
_REASONS = {
    "super user": "{principal} is one of super.users",
    "no acl": "no ACL names {kind} {name}, and allow.everyone.if.no.acl.found={everyone}",
    "no match": "of the ACLs of {kind} {name} none allows {operation} to {principal} from {host}",
}


@dataclass(frozen=True, slots=True)
class Question:
    """The request of a principal on a host for an operation on a resource.

    Operation and type are numbers of `metadata.acls`.
    """

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that affect the decision."""

    super_users: str
    allow_everyone: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision of the brokers with the same settings."""

    brokers: tuple[int, ...]
    settings: Settings
    decision: AclDecision

    @property
    def brokers_text(self) -> str:
        return f"broker{'s' * (len(self.brokers) > 1)} {', '.join(map(str, self.brokers))}"


def answers_of(question: Question, where: Target) -> list[Answer]:
    """The decisions, one for each group of brokers with the same settings, in the order of the lowest ids."""
    from odradek.metadata.acls import CLUSTER_NAME, AclResourceType

    asked = [question]
    if (question.operation, question.resource_type) in _ALSO_BY_CLUSTER:
        cluster = int(AclResourceType.CLUSTER)
        asked.append(Question(question.principal, question.host, question.operation, cluster, CLUSTER_NAME))

    async def work(cluster: Cluster) -> tuple[list[list[Acl]], dict[Settings, list[int]]]:
        return [await _acls_of(cluster, each) for each in asked], await _settings_of_brokers(cluster)

    found, settings = administer(where, work)
    return [Answer(tuple(brokers), each, _decide(asked, found, each)) for each, brokers in settings.items()]


def explained(question: Question, answer: Answer) -> str:
    """The rule that decides, or the reason why there is none."""
    from odradek.metadata.acls import AclOperation, AclResourceType
    from odradek.security.acl.audit import rule_text

    if answer.decision.rule is not None:
        return rule_text(answer.decision.rule)
    return _REASONS[answer.decision.reason].format(
        principal=question.principal,
        host=question.host,
        operation=AclOperation(question.operation).name,
        kind=AclResourceType(question.resource_type).name,
        name=question.name,
        everyone=answer.settings.allow_everyone,
    )


def answered(answers: list[Answer]) -> dict[str, Any]:
    """The decisions as JSON: the only one, or whether all brokers allow it and the decision of each group."""
    if len(answers) == 1:
        return _answered(answers[0])
    each = [{"brokers": list(answer.brokers), **_answered(answer)} for answer in answers]
    return {"allowed": all(answer.decision.allowed for answer in answers), "answers": each}


def _answered(answer: Answer) -> dict[str, Any]:
    decision = answer.decision
    rule = None if decision.rule is None else described(decision.rule)
    return {"allowed": decision.allowed, "reason": decision.reason, "rule": rule}


def _decide(asked: list[Question], found: list[list[Acl]], settings: Settings) -> AclDecision:
    """The decision: the first rule that allows decides, otherwise the first of all."""
    from uuid import UUID

    from odradek.security.acl.authorizer import StandardAuthorizer
    from odradek.settings.formats import super_users

    decisions = []
    for question, acls in zip(asked, found, strict=True):
        everyone = settings.allow_everyone == "true"
        authorizer = StandardAuthorizer(super_users(settings.super_users), allow_if_no_acl=everyone)
        authorizer.update({UUID(int=number): acl for number, acl in enumerate(acls)})
        decisions.append(
            authorizer.why(question.principal, question.host, question.operation, question.resource_type, question.name)
        )
    return next((each for each in decisions if each.allowed), decisions[0])


async def _acls_of(cluster: Cluster, question: Question) -> list[Acl]:
    from odradek.client.acls import describe_acls
    from odradek.metadata.acl_messages import acls_from_description
    from odradek.metadata.acls import AclOperation, PatternType, PermissionType
    from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest

    request = DescribeAclsRequest(
        resource_type_filter=question.resource_type,
        resource_name_filter=question.name,
        pattern_type_filter=PatternType.MATCH,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )
    return list(acls_from_description(await describe_acls(cluster, request)))


async def _settings_of_brokers(cluster: Cluster) -> dict[Settings, list[int]]:
    """The brokers by their settings."""
    from odradek.client.admin import ResourceType, describe_cluster, describe_configs

    ids = sorted(each.broker_id for each in (await describe_cluster(cluster)).brokers)
    found: dict[Settings, list[int]] = {}
    for result in await describe_configs(cluster, ResourceType.BROKER, [str(each) for each in ids]):
        values = {config.name: config.value or "" for config in result.configs}
        settings = Settings(values.get("super.users", ""), values.get("allow.everyone.if.no.acl.found", "false"))
        found.setdefault(settings, []).append(int(result.resource_name))
    return found
