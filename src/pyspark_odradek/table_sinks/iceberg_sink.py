"""An exactly-once sink into an Iceberg table: tasks write Parquet files, the driver adds them in one commit.

The commit sets a property of the table, `odradek.batch.<query id>`, to the batch's number and plan, in the same step as
it adds the files; a property outlives the expiry of snapshots. If Spark runs a batch again, its number is found and the
batch is skipped; files that no snapshot names are invisible to readers.

A commit succeeds only if the table's newest snapshot is still the one that was read. Since 0.12 pyiceberg retries a
commit after a conflict on the newer snapshot, without a check of our property: that is turned off for the table object
that commits, and the sink reads the table again itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from pyiceberg import exceptions
from pyiceberg import types as iceberg
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    SignError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
    WaitingForLockException,
)
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from requests.exceptions import ConnectionError as Unreachable
from requests.exceptions import Timeout
from sqlalchemy.exc import OperationalError

from pyspark_odradek.errors import ClusterError, OptionError, one_line
from pyspark_odradek.micro_batch.task import Task, is_written
from pyspark_odradek.options import boolean
from pyspark_odradek.spark_api import arrow_schema
from pyspark_odradek.table_sinks.column_types import scalar_type
from pyspark_odradek.table_sinks.parquet_files import COMPRESSIONS, LeftFiles, ParquetFiles, all_files, write_files
from pyspark_odradek.table_sinks.table_sink import LeftRows, TableStreamWriter, new_columns, patiently

log = logging.getLogger("pyspark_odradek")

OF_CATALOG = "catalog."
MARKER = "odradek.batch."
# A conflict, a commit of unknown outcome, and a catalog that is down or overloaded: a retry may succeed.
PASSING = (
    CommitFailedException,
    CommitStateUnknownException,
    ConnectionError,
    OperationalError,
    ServerError,
    ServiceUnavailableError,
    Timeout,
    Unreachable,
    WaitingForLockException,
    # Older versions have no class for it; then the batch is refused.
    getattr(exceptions, "TooManyRequestsError", ServiceUnavailableError),
)
REFUSALS = (
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OSError,
    RESTError,
    SignError,
    ValidationError,
    ValidationException,
    ValueError,
)


class IcebergStreamWriter(TableStreamWriter):
    """`df.writeStream.format("odradek").option("sink", "iceberg")`.

    A missing table is created when the query starts; tasks get its location with this object.
    """

    what = "Iceberg"
    known: ClassVar[list[str]] = ["sink", "table", "catalog", "partitionColumns", "mergeSchema", "compression"]

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.target = self.options.get("table", "")
        if self.target.count(".") < 1:
            raise OptionError(
                "the Iceberg sink needs the option table, such as shop.orders, and those of its catalog, such as "
                "catalog.uri=sqlite:////lake/catalog.db and catalog.warehouse=file:///lake"
            )
        self.catalog = self.options.get("catalog", "default")
        self.properties = {
            name.removeprefix(OF_CATALOG): value for name, value in self.options.items() if self.is_passed_on(name)
        }
        self.merge_schema = boolean(self.options, "mergeSchema", False)
        self.compression = self.one_of("compression", COMPRESSIONS)
        self.partition_columns = self.partition_columns_of()
        self.wanted = iceberg_schema(schema)
        try:
            table = self.table()
        except OptionError:
            raise
        except (*PASSING, *REFUSALS) as error:
            raise ClusterError(
                f"the table {self.target} cannot be loaded from its catalog: {one_line(error)}"
            ) from None
        self.location = f"{table.location()}/data"
        self.io_properties = dict(table.io.properties)

    def is_passed_on(self, name: str) -> bool:
        """Whether pyiceberg checks an option: it is one of the catalog."""
        return name.startswith(OF_CATALOG)

    def write(self, iterator: Iterator[Any]) -> LeftFiles:
        """Write all rows of a task into files. Raises StagingError."""
        wanted = arrow_schema(self.schema)
        folder = IcebergFolder(self.io_properties, self.location)
        files = ParquetFiles(folder, wanted, self.partition_columns, self.compression, keep_values=True)
        return write_files(self.task(), files, iterator, wanted, self.location)

    def commit_once(self, task: Task, found: Iterable[LeftRows]) -> bool:
        """Add the files and set the property in one commit of the catalog."""
        files = all_files(found)
        try:
            return patiently(
                lambda: self._add(task, [f"{self.location}/{file.name}" for file in files]),
                PASSING,
                f"batch {task.batch_id} could not be written to {self.target}",
            )
        except OptionError:
            raise
        except REFUSALS as error:
            raise ClusterError(
                f"batch {task.batch_id} was refused by {self.target}: {one_line(error)}. Nothing of it was written; a "
                "restart reads the same rows again."
            ) from None

    def _add(self, task: Task, paths: list[str]) -> bool:
        table = self.table()
        marker = f"{MARKER}{task.query_id}"
        newest, _, found_plan = table.properties.get(marker, "").partition(" ")
        where, plan = f"the table {self.target}", self.plan(task.batch_id)
        if is_written(int(newest) if newest else None, task.batch_id, where, found_plan=found_plan, plan=plan):
            log.warning("batch %d is in %s already and is not written again", task.batch_id, self.target)
            return False
        table.metadata.properties["commit.retry.num-retries"] = "0"  # of this object; the table's own stay
        with table.transaction() as transaction:
            transaction.set_properties({marker: f"{task.batch_id} {plan}".rstrip()})
            said = {"odradek.query-id": task.query_id, "odradek.batch-id": str(task.batch_id)}
            transaction.add_files(paths, snapshot_properties=said, check_duplicate_files=False)
        return True

    def table(self) -> Table:
        """The newest version of the table, created if missing. Raises OptionError if its columns do not match."""
        catalog = self._catalog()
        try:
            table = catalog.load_table(self.target)
        except NoSuchTableError:
            table = self._made(catalog)
        self._check_partitions(table)
        required = [each.name for each in table.schema().fields if each.required]
        new = new_columns(
            self.target,
            {each.name: shape(each.field_type) for each in table.schema().fields},
            {each.name: shape(each.field_type) for each in self.wanted.fields},
            required=required,
            merge_schema=self.merge_schema,
        )
        loose = [name for name in required if self.schema[name].nullable]
        if loose:
            raise OptionError(
                f"the table {self.target} requires {', '.join(loose)}, which may be null here: use coalesce, or make "
                "the column optional there"
            )
        if new:
            with table.update_schema() as update:
                update.union_by_name(self.wanted)
        return table

    def _catalog(self) -> Catalog:
        try:
            return load_catalog(self.catalog, **self.properties)
        except (ValueError, ImportError, NotInstalledError) as error:
            raise OptionError(f"catalog {self.catalog}: {error}") from None

    def _made(self, catalog: Catalog) -> Table:
        ids = {each.name: each.field_id for each in self.wanted.fields}
        fields = [
            PartitionField(source_id=ids[name], field_id=1000 + number, transform=IdentityTransform(), name=name)
            for number, name in enumerate(self.partition_columns)
        ]
        namespace = self.target.rpartition(".")[0]
        try:
            catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            log.debug("the namespace %s is there", namespace)
        try:
            return catalog.create_table(self.target, self.wanted, partition_spec=PartitionSpec(*fields))
        except TableAlreadyExistsError:
            return catalog.load_table(self.target)

    def _check_partitions(self, table: Table) -> None:
        names = {each.field_id: each.name for each in table.schema().fields}
        fields = table.spec().fields
        found = [names.get(each.source_id) for each in fields if isinstance(each.transform, IdentityTransform)]
        if len(found) < len(fields) or set(found) != set(self.partition_columns):
            there = ", ".join(f"{each.transform} of {names.get(each.source_id)}" for each in fields) or "nothing"
            raise OptionError(
                f"the table {self.target} is partitioned by {there}: set partitionColumns to the same columns; only "
                "identity partitions can be written"
            )


class IcebergFolder:
    """The folder of a table's files, accessed with the FileIO of its catalog."""

    def __init__(self, properties: Mapping[str, str], location: str) -> None:
        self._io = load_file_io(dict(properties), location)
        self._location = location

    def create(self, name: str) -> Any:
        return self._io.new_output(f"{self._location}/{name}").create()

    def size_bytes(self, name: str) -> int:
        return len(self._io.new_input(f"{self._location}/{name}"))

    def remove(self, name: str) -> None:
        self._io.delete(f"{self._location}/{name}")


def iceberg_schema(schema: StructType) -> Schema:
    """The columns in Iceberg, all of them optional. Raises OptionError for types that do not exist there."""
    numbers = iter(range(1, 1 << 20))
    made = _type(schema, numbers, "the row")
    return Schema(*made.fields)


def _type(type_: DataType, numbers: Iterator[int], where: str) -> Any:
    if isinstance(type_, StructType):
        ids = [next(numbers) for _ in type_]
        return iceberg.StructType(
            *(
                iceberg.NestedField(number, each.name, _type(each.dataType, numbers, each.name), required=False)
                for number, each in zip(ids, type_, strict=True)
            )
        )
    if isinstance(type_, ArrayType):
        return iceberg.ListType(next(numbers), _type(type_.elementType, numbers, where), element_required=False)
    if isinstance(type_, MapType):
        key, value = next(numbers), next(numbers)
        return iceberg.MapType(
            key, _type(type_.keyType, numbers, where), value, _type(type_.valueType, numbers, where), False
        )
    if isinstance(type_, DecimalType):
        return iceberg.DecimalType(type_.precision, type_.scale)
    scalar = scalar_type(type_)
    if scalar is None:
        raise OptionError(f"the column {where} is {type_.simpleString()}, which Iceberg has not: cast it")
    return getattr(iceberg, scalar.iceberg)()


def shape(type_: Any) -> str:
    """A type without the ids of its fields, as text to compare and print."""
    if isinstance(type_, iceberg.StructType):
        return f"struct<{', '.join(f'{each.name}: {shape(each.field_type)}' for each in type_.fields)}>"
    if isinstance(type_, iceberg.ListType):
        return f"list<{shape(type_.element_type)}>"
    if isinstance(type_, iceberg.MapType):
        return f"map<{shape(type_.key_type)}, {shape(type_.value_type)}>"
    return str(type_)
