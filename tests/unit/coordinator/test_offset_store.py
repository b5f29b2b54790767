"""Committed offsets and those that open transactions hold back, as the log's records make them."""

from __future__ import annotations

from odradek.coordinator.group.offsets.store import OffsetStore
from odradek.coordinator.group.records import OffsetRecord, TransactionEndRecord
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.statemachine.timeline import Timeline


class Store:
    """A store whose records come one after the other."""

    def __init__(self) -> None:
        self.store = OffsetStore(Timeline())
        self._at = 0

    def commit(self, offset: int | None, *, group: str = "g", partition: int = 0, producer: int = -1) -> None:
        """Commit an offset, None removes it; inside of a producer's transaction where one is given."""
        key = OffsetCommitKey(group=group, topic="t", partition=partition)
        value = None if offset is None else OffsetCommitValue(offset=offset)
        epoch = -1 if producer < 0 else producer * 10
        self.store.replay(OffsetRecord(key, value, producer_id=producer, producer_epoch=epoch), self._at)
        self._at += 1

    def end(self, producer: int, *, commit: bool) -> None:
        self.store.replay_transaction_end(TransactionEndRecord(producer, commit, producer * 10))
        self._at += 1

    def offset(self, partition: int = 0, group: str = "g") -> int | None:
        found = self.store.get(group, "t", partition)
        return None if found is None else found.offset

    def held(self) -> list[tuple[str, int, int]]:
        return [(key[0], key[2], held.offset) for key, held in self.store.pending()]


def test_committed_offsets_stay_until_removed() -> None:
    node = Store()
    node.commit(5)
    node.commit(6, partition=1)
    node.commit(7)
    assert (node.offset(0), node.offset(1), len(node.store)) == (7, 6, 2)
    node.commit(None)
    assert (node.offset(0), node.offset(1)) == (None, 6)
    assert node.store.has_group("g")
    node.commit(None)
    node.commit(None, partition=1)
    assert not node.store.has_group("g") and len(node.store) == 0 and list(node.store.group_ids()) == []
    node.commit(None, group="other")


def test_a_transaction_holds_back_until_its_end() -> None:
    node = Store()
    node.commit(5)
    node.commit(9, producer=7)
    node.commit(10, producer=7)
    assert (node.offset(), node.held()) == (5, [("g", 0, 10)])
    assert node.store.is_unstable("g", "t", 0) and not node.store.is_unstable("g", "t", 1)
    assert (node.store.open_epoch(7), node.store.open_epoch(8)) == (70, None)
    assert node.store.pending_of_group("g") == [("t", 0)] and node.store.pending_of_group("h") == []
    node.end(7, commit=True)
    assert (node.offset(), node.held()) == (10, [])
    assert not node.store.is_unstable("g", "t", 0)
    assert node.store.open_epoch(7) is None
    node.commit(11, producer=7)
    node.end(7, commit=False)
    assert (node.offset(), node.held(), node.store.open_epoch(7)) == (10, [], None)
    node.end(8, commit=True)
    assert node.offset() == 10, "it held nothing back"


def test_of_two_kinds_the_later_record_counts() -> None:
    node = Store()
    node.commit(9, producer=7)
    node.commit(9, partition=1, producer=7)
    node.commit(5)
    node.end(7, commit=True)
    assert (node.offset(0), node.offset(1)) == (5, 9)


def test_an_offset_is_unstable_while_any_transaction_has_it_pending() -> None:
    node = Store()
    for producer in (7, 8, 9):
        node.commit(producer, producer=producer)
    node.commit(1, partition=1, producer=8)
    seen = []
    for producer in (8, 7, 9):
        assert node.store.is_unstable("g", "t", 0)
        node.end(producer, commit=True)
        seen.append((node.offset(0), node.offset(1), node.store.is_unstable("g", "t", 1)))
    assert seen == [(8, 1, False), (8, 1, False), (9, 1, False)]
    assert not node.store.is_unstable("g", "t", 0)


def test_a_deletion_drops_pending_offsets_of_its_topic_only() -> None:
    node = Store()
    for producer in (7, 8):
        node.commit(producer, producer=producer)
    node.commit(3, partition=1, producer=7)
    node.commit(4, partition=2, producer=9)
    node.commit(None)
    assert not node.store.is_unstable("g", "t", 0)
    assert node.held() == [("g", 1, 3), ("g", 2, 4)]
    assert [node.store.open_epoch(producer) for producer in (7, 8, 9)] == [70, None, 90]
    assert node.store.is_unstable("g", "t", 1) and node.store.is_unstable("g", "t", 2)
    node.commit(None, partition=5)
    assert node.held() == [("g", 1, 3), ("g", 2, 4)]
    node.end(7, commit=True)
    assert (node.offset(0), node.offset(1)) == (None, 3)
