"""Compaction against a plain model: random logs, each pass checked for all that is promised."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.compaction.cleaning import MAX_GROUP_SEGMENTS, SegmentPlan, group_segments
from tests.support.models.compacted_log import CODECS, RETENTION_MS, CompactedLog, kept_batches, kept_records

KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"d" * 130])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), min_size=1, max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("append"), PAIRS, st.sampled_from(CODECS), st.sampled_from([-1, 7])),
    st.tuples(st.just("transact"), PAIRS, st.sampled_from(CODECS), st.sampled_from([8, 9])),
    st.tuples(st.just("end"), st.booleans(), st.sampled_from([8, 9])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS])),
    st.tuples(st.just("clean")),
)


def play(compacted: CompactedLog, steps: list[tuple[Any, ...]]) -> None:
    for name, *arguments in steps:
        if name == "append":
            pairs, codec, producer_id = arguments
            compacted.append(pairs, codec=codec, producer_id=producer_id)
        elif name == "transact":
            pairs, codec, producer_id = arguments
            compacted.in_transaction(producer_id, pairs, codec)
        elif name == "end":
            commit, producer_id = arguments
            compacted.end_transaction(producer_id, commit=commit)
        elif name == "roll":
            compacted.roll()
        elif name == "wait":
            compacted.now_ms += arguments[0]
        elif compacted.clean():
            compacted.check()
            compacted.check_view()


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40), st.sampled_from([300, 1000, 1 << 20]), st.sampled_from([400, 1 << 20]))
def test_random_logs_keep_what_is_promised(steps: list[tuple[Any, ...]], table_bytes: int, segment_bytes: int) -> None:
    compacted = CompactedLog(table_bytes=table_bytes, segment_bytes=max(segment_bytes, 2000))
    play(compacted, steps)
    # However it was left, it can be cleaned to the end, and then again when all horizons have passed.
    for producer_id in (8, 9):
        compacted.end_transaction(producer_id, commit=True)
    # While a producer is remembered, its last batch stays, emptied, and with it the marker of its last transaction.
    compacted.log.producers.expire(0, 0)
    compacted.log.producers.expire(0, 0)
    compacted.clean_past_retention()
    assert len(kept_records(compacted.log)) <= 6 + 1, "one record for each key, at most, and the active segment"
    headers = [header for header, _ in kept_batches(compacted.log)]
    data = {header.base_offset for header in headers if header.is_transactional and not header.is_control}
    markers = {header.base_offset for header in headers if header.is_control and header.record_count}
    of_data = {each.marker_offset for each in compacted.transactions if any(base in data for base, _ in each.batches)}
    assert markers == of_data, "a marker stays for as long as its data"


def test_groups_stay_within_what_a_segment_may_have() -> None:
    def groups(*segments: SegmentPlan, end: int = 2**62, index_bytes: int = 0) -> list[int]:
        return group_segments(
            segments, end, segment_bytes=100, segment_index_bytes=50, index_bytes=lambda segment: index_bytes
        )

    def run(count: int, size: int, step: int = 10) -> list[SegmentPlan]:
        return [SegmentPlan(number * step, (number + 1) * step, size) for number in range(count)]

    assert groups(*run(5, 40)) == [2, 2, 1]
    assert groups(*run(5, 0), index_bytes=20) == [2, 2, 1]
    assert groups(*run(4, 50)) == groups(*run(4, 0), index_bytes=25) == [2, 2], "the limits are inclusive"
    assert groups(*run(5, 200)) == [1] * 5, "one that is too large stands alone"
    assert groups(*run(5, 40), end=21) == [2, 1], "what begins behind the end stays"
    assert groups(*run(4, 0, step=2**30)) == [2, 2], "offsets within a segment have 31 bits"
    assert max(groups(*run(200, 0))) == MAX_GROUP_SEGMENTS
