"""The time to authorize a request for one topic with 10,000 ACLs: run with `python -m bench.acl_bench`.

The exit code is 1 if one authorization takes more than 3 µs: for a topic that was authorized before, as a client's
topics are, or for another topic each time. Both times are the best of some rounds: other processes only add to them.
"""

from __future__ import annotations

import sys
import time
from uuid import UUID

from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.model import Acl
from odradek.security.acl.authorizer import StandardAuthorizer

ENTRIES = 10_000
QUESTIONS = 30_000
ROUNDS = 10
LIMIT_US = 3.0
HOST = "10.1.2.3"


def entries() -> dict[UUID, Acl]:
    """ACLs: half literal, half prefixed with eight lengths; a tenth denies, a tenth is for networks."""
    made: dict[UUID, Acl] = {}
    for number in range(ENTRIES):
        prefixed = number % 2
        name = f"team{number % 1000}-{'x' * (number % 8)}{number}" + ("-" if prefixed else "")
        made[UUID(int=number + 1)] = Acl(
            resource_type=int(AclResourceType.TOPIC),
            resource_name=name,
            pattern_type=int(PatternType.PREFIXED if prefixed else PatternType.LITERAL),
            principal=f"User:u{number % 100}",
            host="10.0.0.0/8" if number % 10 == 3 else "*",
            operation=int(AclOperation.READ if number % 3 else AclOperation.ALL),
            permission_type=int(PermissionType.DENY if number % 10 == 7 else PermissionType.ALLOW),
        )
    return made


def measure(authorizer: StandardAuthorizer, names: list[str]) -> float:
    """The microseconds of one authorization, as the mean over all names."""
    operation, kind = int(AclOperation.DESCRIBE), int(AclResourceType.TOPIC)
    begun = time.process_time()
    for number, name in enumerate(names):
        authorizer.authorize(f"User:u{number % 100}", HOST, operation, kind, name)
    return (time.process_time() - begun) * 1e6 / len(names)


def names_asked(topics: list[str], turn: int) -> list[str]:
    """Names of which none was authorized before, in this round or an earlier one."""
    return [f"{topics[number % ENTRIES]}{turn}{number}" for number in range(QUESTIONS)]


def main() -> int:
    """Print both figures."""
    authorizer = StandardAuthorizer(["User:admin"])
    acls = entries()
    authorizer.update(acls)
    topics = [acl.resource_name + ("1" if acl.pattern_type == PatternType.PREFIXED else "") for acl in acls.values()]
    again = min(measure(authorizer, [topics[number % 1000] for number in range(QUESTIONS)]) for _ in range(ROUNDS))
    new = min(measure(authorizer, names_asked(topics, turn)) for turn in range(ROUNDS))
    print(f"{ENTRIES} entries: {again:.2f} us for a name asked before, {new:.2f} us for another name each time")
    return int(max(again, new) > LIMIT_US)


if __name__ == "__main__":
    sys.exit(main())
