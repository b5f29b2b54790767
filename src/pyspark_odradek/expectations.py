"""Rules that rows of a pipeline must keep: counted, dropped, kept apart, or the end of the run.

A decorator below `@dp.table` or `@dp.append_flow`; it is made of Spark's public functions, so a file that uses it runs
under `spark-pipelines` too:

    @dp.table
    @expect(count={"known": "user IS NOT NULL"}, quarantine={"positive": "amount > 0"})
    def payments(): ...

A rule is an SQL condition over the function's columns. A row keeps it where the condition is true: null is not true.
All rules see the function's own rows. Counts of streaming flows are in Spark's progress, as observed metrics, and from
there in `odradek pipeline status`.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark_odradek.errors import OptionError

Query = Callable[[], Any]
OBSERVED = "expectations"
ROWS = "rows"
OF_QUARANTINE = "_quarantine"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Rule(NamedTuple):
    """One expectation; `action` is count, drop, quarantine or fail."""

    name: str
    condition: str
    action: str


def expect(
    *,
    count: Mapping[str, str] | None = None,
    drop: Mapping[str, str] | None = None,
    quarantine: Mapping[str, str] | None = None,
    fail: Mapping[str, str] | None = None,
    quarantine_table: str | None = None,
) -> Callable[[Query | None], Query]:
    """Hold the rows of a query function against rules, each a name and a condition.

    Args:
        count: rows that break it are counted and go on.
        drop: they are counted and left out.
        quarantine: they are counted, left out and put into a streaming table beside, with a column `broken` of rules'
            names. That is a flow of its own over the same query, with its own checkpoint: each row is in exactly
            one of both tables, and what the query reads is read twice. A groupId that the query gives its source is the
            group's of the rows that go on; the quarantine's has `_quarantine` behind it. For streaming queries only.
        fail: the run ends at such a row, with nothing of its batch written.
        quarantine_table: `<function>_quarantine` where it is not given.
    Raises:
        OptionError: a name that is none or stands twice, no condition, no rule at all, a table without a rule, or no
            query, as above `@dp.table`.
    """
    rules = rules_of(count=count, drop=drop, quarantine=quarantine, fail=fail)
    if quarantine_table is not None and not quarantine:
        raise OptionError("quarantine_table is given, and no rule for quarantine")

    def decorate(query: Query | None) -> Query:
        if query is None:  # Spark's decorators return None
            raise OptionError("@expect stands above Spark's decorator and would have no effect; put it below")
        if quarantine:
            _quarantine(query, rules, quarantine_table or f"{query.__name__}_quarantine")

        @functools.wraps(query)
        def expecting() -> Any:
            return accepted(query(), query.__name__, rules)

        return expecting

    return decorate


def rules_of(**given: Mapping[str, str] | None) -> list[Rule]:
    """The rules of a decorator. Raises OptionError."""
    rules = [Rule(name, text, action) for action, some in given.items() for name, text in (some or {}).items()]
    if not rules:
        raise OptionError("expect() has no rule; for example count={'known': 'user IS NOT NULL'}")
    for rule in rules:
        _check(rule)
    for name, rules_of_it in Counter(rule.name for rule in rules).items():
        if rules_of_it > 1:
            raise OptionError(f"two expectations are named {name}")
    return rules


def _check(rule: Rule) -> None:
    if not isinstance(rule.name, str) or not _NAME.fullmatch(rule.name):
        raise OptionError(f"{rule.name!r} is not a name for an expectation: letters, digits and _, a letter first")
    if not isinstance(rule.condition, str) or not rule.condition.strip():
        raise OptionError(f"the expectation {rule.name} has no condition")


def accepted(rows: Any, name: str, rules: list[Rule]) -> Any:
    """The rows that may go on, of a DataFrame; all of them are counted, and how many break which rule."""
    from pyspark.sql import functions as fn

    broken = [fn.count_if(~_kept(rule)).alias(f"{rule.action}:{rule.name}") for rule in rules]
    rows = rows.observe(f"{OBSERVED}:{name}", fn.count(fn.lit(1)).alias(ROWS), *broken)
    for rule in rules:
        if rule.action == "fail":
            failure = fn.raise_error(fn.lit(f"expectation {rule.name} of {name} is broken: {rule.condition}"))
            rows = rows.where(fn.when(_kept(rule), fn.lit(True)).otherwise(failure.cast("boolean")))
        elif rule.action != "count":
            rows = rows.where(_kept(rule))
    return rows


def refused(rows: Any, rules: list[Rule]) -> Any:
    """The rows that break a rule of the quarantine, with the names of those rules in `broken`."""
    from pyspark.sql import functions as fn

    names = fn.array(*(fn.when(~_kept(rule), fn.lit(rule.name)) for rule in rules if rule.action == "quarantine"))
    return rows.withColumn("broken", fn.filter(names, lambda name: name.isNotNull())).where(fn.size("broken") > 0)


def _quarantine(query: Query, rules: list[Rule], table: str) -> None:
    from pyspark import pipelines as dp

    dp.create_streaming_table(table, comment=f"Rows that {query.__name__} does not take.")

    def apart() -> Any:
        with _as_another_group():
            rows = query()
        return refused(rows, rules)

    dp.append_flow(target=table, name=table)(apart)


@contextmanager
def _as_another_group() -> Iterator[None]:
    """Streams that are made meanwhile with the option groupId have OF_QUARANTINE behind it.

    They read what others of that group read, at another pace: of two that commit offsets of one partition for one group
    each would put the other's back.
    """
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        yield
        return
    kind: Any = type(session.readStream)
    option, options = kind.option, kind.options

    def renamed(reader: Any, key: str, value: Any) -> Any:
        return option(reader, key, f"{value}{OF_QUARANTINE}" if key.lower() == "groupid" else value)

    def each_renamed(reader: Any, **given: Any) -> Any:
        for key, value in given.items():
            reader = renamed(reader, key, value)
        return reader

    kind.option, kind.options = renamed, each_renamed
    try:
        yield
    finally:
        kind.option, kind.options = option, options


def _kept(rule: Rule) -> Any:
    from pyspark.sql import functions as fn

    return fn.coalesce(fn.expr(rule.condition).cast("boolean"), fn.lit(False))


__all__ = ["expect"]
