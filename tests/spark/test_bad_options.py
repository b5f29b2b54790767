"""A wrong option is one error with one sentence that says what to do, before anything is read or written."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from pyspark_odradek.errors import OptionError
from pyspark_odradek.options import parse_read_options
from tests.spark.queries import load, load_stream
from tests.support.nodes.node import free_port

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
GOOD = SERVERS | {"subscribe": "t"}

BAD_READS = [
    ({"subscribe": "t"}, 'set option("kafka.bootstrap.servers"'),
    (SERVERS, "give exactly one of subscribe, subscribePattern and assign"),
    (GOOD | {"assign": '{"t":[0]}'}, "give exactly one of"),
    (SERVERS | {"subscribe": " , "}, "subscribe names no topic"),
    (SERVERS | {"subscribePattern": "("}, "is not a regular expression"),
    (SERVERS | {"assign": '{"t": 0}'}, "assign is JSON such as"),
    (SERVERS | {"assign": '{"t": []}'}, "assign names no partition"),
    (SERVERS | {"assign": "t"}, "assign is neither a word it knows nor JSON"),
    (GOOD | {"startingOfset": "earliest"}, "did you mean 'startingOffsets'"),
    (GOOD | {"startingOffsets": "latest"}, "startingOffsets=latest makes no sense in a batch query"),
    (GOOD | {"startingOffsets": '{"t": {"0": -1}}'}, "may not hold -1"),
    (GOOD | {"startingOffsets": '{"t": {"0": -3}}'}, "-3 is below -2"),
    (GOOD | {"startingOffsets": '{"t": {"0": 1.5}}'}, "1.5 is not a whole number"),
    (GOOD | {"startingOffsets": "[1]"}, "must be a JSON object"),
    (GOOD | {"endingOffsets": "earliest"}, "endingOffsets=earliest makes no sense"),
    (GOOD | {"startingTimestamp": "yesterday"}, "'yesterday' is not a whole number"),
    (GOOD | {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "x"}, "is latest or error"),
    (GOOD | {"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false"),
    (GOOD | {"minPartitions": "0"}, "0 is below 1"),
    (GOOD | {"maxBytesPerTrigger": "10 stones"}, "is not a number with one of the units"),
    (GOOD | {"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
    (GOOD | {"kafka.value.deserializer": "X"}, "use cast or from_json"),
    (GOOD | {"startingOffsets": f'{{"t": {{"0": {1 << 63}}}}}'}, "startingOffsets: 9223372036854775808 is above"),
    (GOOD | {"startingOffsets": f'{{"t": {{"{1 << 31}": 0}}}}'}, "startingOffsets: 2147483648 is above 2147483647"),
    (GOOD | {"endingTimestamp": str(1 << 63)}, "endingTimestamp: 9223372036854775808 is above"),
    (GOOD | {"maxBytesPerTrigger": "9" * 5000}, "is not a number with one of the units"),
]
BAD_STREAMS = [
    (GOOD | {"endingOffsets": "latest"}, "endingOffsets is for batch queries"),
    (GOOD | {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"}, "is above maxOffsetsPerTrigger"),
    (GOOD | {"maxTriggerDelay": "soon"}, "is not a number with one of the units ms"),
]


def test_good_options_are_no_error() -> None:
    for streaming in (False, True):
        assert parse_read_options(GOOD, streaming=streaming).topics == ("t",)


@pytest.mark.parametrize(("options", "sentence"), BAD_READS, ids=[sentence[:30] for _, sentence in BAD_READS])
def test_of_a_batch_query(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_read_options(options, streaming=False)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("options", "sentence"), BAD_STREAMS, ids=[sentence[:30] for _, sentence in BAD_STREAMS])
def test_of_a_streaming_query(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_read_options(options, streaming=True)
    assert sentence in str(raised.value)


def one_error(raised: pytest.ExceptionInfo[BaseException]) -> str:
    """The last line of what Spark shows; no second error may stand above it."""
    text = str(raised.value)
    assert "During handling" not in text
    return [line for line in text.splitlines() if line.strip() and "SQLSTATE" not in line][-1]


def test_spark_shows_our_sentence_last(spark: Any) -> None:
    with pytest.raises(Exception) as raised:
        load(spark, "localhost:1", subscribe="t", startingOfset="earliest").count()
    assert one_error(raised) == (
        "pyspark_odradek.errors.OptionError: unknown option 'startingofset': did you mean 'startingOffsets'?"
    )


def test_a_stream_is_refused_at_load(spark: Any) -> None:
    with pytest.raises(Exception) as raised:
        load_stream(spark, "no port", subscribe="t", subscribePattern="t")
    assert "OptionError: give exactly one of" in one_error(raised)


def test_a_topic_that_does_not_exist(spark: Any, odradek: str) -> None:
    with pytest.raises(Exception) as raised:
        load(spark, odradek, subscribe="no-such-topic").count()
    assert "ClusterError: no such topic: no-such-topic. Create it, or correct" in one_error(raised)


def test_a_name_that_no_topic_can_have(spark: Any, odradek: str) -> None:
    with pytest.raises(Exception) as raised:
        load(spark, odradek, subscribe="a b!").count()
    assert "ClusterError: 'a b!' can be no topic's name: it is letters, digits" in one_error(raised)


def test_a_partition_that_does_not_exist(spark: Any, odradek: str, topic: str) -> None:
    from tests.support.clients.confluent import create_topic

    create_topic(odradek, topic, 2)
    with pytest.raises(Exception) as raised:
        load(spark, odradek, assign=f'{{"{topic}": [0, 5]}}').count()
    assert f"ClusterError: topic {topic} has 2 partitions; assign names [5]" in one_error(raised)


def test_offsets_for_other_partitions(spark: Any, odradek: str, topic: str) -> None:
    from tests.support.clients.confluent import create_topic

    create_topic(odradek, topic, 2)
    with pytest.raises(Exception) as raised:
        load(spark, odradek, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 0}}}}').count()
    assert f"must name every partition that is read and no other; {topic}-1 is missing" in one_error(raised)


def test_no_one_answers(spark: Any) -> None:
    port = free_port()
    with pytest.raises(Exception) as raised:
        load(spark, f"127.0.0.1:{port}", subscribe="t", kafka_default_api_timeout_ms=700).count()
    message = one_error(raised)
    assert f"127.0.0.1:{port} did not tell the topics in 0.7 s (kafka.default.api.timeout.ms)" in message
    assert "refused" in message


BAD_SINKS = [
    ("1 AS value", {"topic": "t"}, "column value is int; cast it to string or binary"),
    ("'a' AS key", {"topic": "t"}, "the topic sink needs a column value"),
    ("'a' AS value", {}, "set the option topic, or give each row a column topic"),
    ("'a' AS value, 2 AS wind", {"topic": "t"}, "select away wind"),
    ("'a' AS value, 1L AS partition", {"topic": "t"}, "column partition must be an int"),
    ("'a' AS value, 'h' AS headers", {"topic": "t"}, "column headers must be array"),
    ("'a' AS value", {"topic": "t", "kafka.no.such.setting": "1"}, "No such configuration property"),
    ("'a' AS value", {"topics": "t"}, "did you mean 'topic'"),
]


@pytest.mark.parametrize(("columns", "options", "sentence"), BAD_SINKS, ids=[row[2][:30] for row in BAD_SINKS])
def test_of_the_sink(spark: Any, odradek: str, columns: str, options: dict[str, str], sentence: str) -> None:
    frame = spark.sql(f"SELECT {columns}")
    writer = frame.write.format("odradek").option("kafka.bootstrap.servers", odradek).options(**options)
    with pytest.raises(Exception) as raised:
        writer.mode("append").save()
    assert sentence in str(raised.value)


def test_a_topic_is_not_overwritten(spark: Any, odradek: str) -> None:
    writer = spark.sql("SELECT 'a' AS value").write.format("odradek").option("kafka.bootstrap.servers", odradek)
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        writer.option("topic", "t").mode("overwrite").save()


HIDING = """
import sys
from pyspark.sql.types import StringType, StructField, StructType
from pyspark_odradek import DefaultSource
from pyspark_odradek.errors import OptionError
from pyspark_odradek.pipelines.ends import End, check_ends
from pyspark_odradek.writers import stream_writer
sys.modules.update({"deltalake": None, "psycopg": None, "sqlalchemy.exc": None})
schema = StructType([StructField("value", StringType())])
for sink in ("delta", "iceberg", "postgres"):
    (found,) = check_ends([End("flow", {"sink": sink}, schema.jsonValue())])
    try:
        stream_writer({"sink": sink}, schema, False)
    except OptionError as error:
        print(error, str(found) == f"flow: {error}" and found.stops, sep="|")
sys.modules.update({"fastavro": None, "google.protobuf": None})
for form in ("avro", "protobuf"):
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "valueFormat": form, "valueSchema": "{}"}
    try:
        DefaultSource(options).schema()
    except OptionError as error:
        print(error, True, sep="|")
"""


def test_a_package_that_is_missing_is_reported_with_its_extra() -> None:
    """A query reports it, and so does the check of a pipeline before it starts."""
    pytest.importorskip("pyiceberg", reason='needs pyiceberg: pip install "odradek[iceberg]"')
    done = subprocess.run([sys.executable, "-c", HIDING], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    reported = [
        rf"{feature} needs a package that is missing \(.*{module}.*\): pip install \"odradek\[{extra}\]\"\|True"
        for feature, module, extra in (
            ("sink=delta", "deltalake", "delta"),
            ("sink=iceberg", "sqlalchemy", "iceberg"),
            ("sink=postgres", "psycopg", "postgres"),
            ("valueFormat=avro", "fastavro", "avro"),
            ("valueFormat=protobuf", "google.protobuf", "protobuf"),
        )
    ]
    assert re.fullmatch("\n".join(reported), done.stdout.strip()), done.stdout
