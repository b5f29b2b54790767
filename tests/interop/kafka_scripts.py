"""Replacements of `kafka-topics.sh` and `kafka-acls.sh`, over an admin client, for librdkafka's tests.

A JVM for each call would cost a second; these cost a tenth. Only the flags that those tests use are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)


def topics(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="kafka-topics.sh")
    parser.add_argument("--bootstrap-server", required=True)
    for action in ("create", "delete", "alter"):
        parser.add_argument(f"--{action}", action="store_true")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=-1)
    parser.add_argument("--replication-factor", type=int, default=-1)
    parser.add_argument("--config", action="append", default=[])
    options = parser.parse_args(arguments)
    admin = AdminClient({"bootstrap.servers": options.bootstrap_server})
    if options.create:
        config = dict(pair.split("=", 1) for pair in options.config)
        topic = NewTopic(options.topic, options.partitions, options.replication_factor, config=config)
        admin.create_topics([topic])[options.topic].result(30)
    elif options.delete:
        admin.delete_topics([options.topic])[options.topic].result(30)
    elif options.alter:
        admin.create_partitions([NewPartitions(options.topic, options.partitions)])[options.topic].result(30)


def acls(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="kafka-acls.sh")
    parser.add_argument("--bootstrap-server", required=True)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--add", action="store_true")
    action.add_argument("--remove", action="store_true")
    parser.add_argument("--force", action="store_true")
    for kind in ("allow", "deny"):
        parser.add_argument(f"--{kind}-principal")
        parser.add_argument(f"--{kind}-host", default="*")
    parser.add_argument("--operation", required=True)
    parser.add_argument("--topic", required=True)
    options = parser.parse_args(arguments)
    denies = options.deny_principal is not None
    entry = (
        ResourceType.TOPIC,
        options.topic,
        ResourcePatternType.LITERAL,
        options.deny_principal if denies else options.allow_principal,
        options.deny_host if denies else options.allow_host,
        AclOperation[options.operation.upper()],
        AclPermissionType.DENY if denies else AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": options.bootstrap_server})
    if options.remove:
        (removed,) = admin.delete_acls([AclBindingFilter(*entry)]).values()
        assert removed.result(30), "there is no such entry"
    else:
        (added,) = admin.create_acls([AclBinding(*entry)]).values()
        added.result(30)


if __name__ == "__main__":
    {"topics": topics, "acls": acls}[sys.argv[1]](sys.argv[2:])
