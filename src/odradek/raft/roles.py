"""The roles of a replica in the quorum, and every transition between them.

    Unattached   knows no leader of its epoch; a voter asks for pre-votes when nothing is heard for an election timeout
    Prospective  asks for pre-votes, which do not bind; a majority makes it a candidate        (KIP-996)
    Candidate    has raised the epoch and voted for itself; a majority makes it the leader
    Leader       until it hears of a higher epoch, or of no majority for a fetch timeout
    Follower     of a known leader; asks for pre-votes when that one is silent
    Resigned     a leader that gave up its epoch; votes for others, and does not lead again in this epoch

| from                     | to          | when                                                                    |
|--------------------------|-------------|-------------------------------------------------------------------------|
| any                      | Unattached  | a higher epoch without a known leader; it is no voter or may not stand  |
| any                      | Follower    | the leader of this epoch, or of a higher one, is known                  |
| any but Leader           | Prospective | the election timeout, of a follower the fetch timeout                   |
| Prospective              | Candidate   | a majority gives its pre-vote                                           |
| any but Leader, Resigned | Candidate   | it is the only voter, and needs no pre-vote                             |
| Candidate                | Leader      | a majority gives its vote                                               |
| Leader                   | Resigned    | no majority fetches for one and a half fetch timeouts; the node stops   |

An observer is a follower, or unattached, and never stands for election; a voter that was removed does, until its
removal is committed. Source: Kafka QuorumState; KIP-595, KIP-996.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """A replica's role; see the module's head."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


TRANSITIONS: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER, Role.FOLLOWER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
}
