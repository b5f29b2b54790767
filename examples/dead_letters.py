"""Dead letters that a query makes itself, beside those of the source: of records that decode and yet lack something.

The source has no more to say of them than that a field is null. So the query puts them aside, in the transaction of its
batch, under the headers that the source gives to its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from examples.topics import records

if TYPE_CHECKING:
    from pyspark.sql import Column

REASON = "a field is missing"
TOPIC, PARTITION, OFFSET = (f"odradek.{name}" for name in ("topic", "partition", "offset"))


def origin() -> Column:
    """Where a row was read, as one text: topic, partition and offset of the source's columns."""
    from pyspark.sql import functions as fn

    return fn.concat_ws(" ", "topic", "partition", "offset")


def headers(origin: Column) -> Column:
    """The headers of a dead letter, from the text that `origin` made; null where that is null or empty.

    Empty is better in what pandas makes: it would warn of each column that has nothing but nulls.
    """
    from pyspark.sql import functions as fn

    fields = {"odradek.reason": fn.lit(REASON)}
    for number, name in enumerate((TOPIC, PARTITION, OFFSET), 1):
        fields[name] = fn.split_part(origin, fn.lit(" "), fn.lit(number))
    made = [fn.struct(fn.lit(name).alias("key"), each.cast("binary").alias("value")) for name, each in fields.items()]
    return fn.when(origin != "", fn.array(*made))


def put_aside(bootstrap: str, dead: str, topic: str) -> set[tuple[int, int]]:
    """Partition and offset of the records of `topic` whose dead letters are in `dead`; several of one count once."""
    found = set()
    for message in records(bootstrap, dead, settled=True):
        headers = dict(message.headers() or [])
        if headers.get(TOPIC) == topic.encode():
            found.add((int(headers[PARTITION] or -1), int(headers[OFFSET] or -1)))
    return found


def fields_of(value: str | bytes | None) -> dict[str, Any]:
    """The fields of a value; none where it is no object of JSON."""
    try:
        found = json.loads(value or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
