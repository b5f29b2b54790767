"""The Iceberg sink and errors of pyiceberg: each becomes one sentence, also with older versions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.micro_batch.task import Task
from tests.spark.stores import IcebergStore, left, writer

exceptions: Any = pytest.importorskip("pyiceberg.exceptions", reason='needs pyiceberg: pip install "odradek[iceberg]"')
TASK = Task("query", "run", 0, 0, 0)


def loaded_again() -> Any:
    """The module, loaded a second time beside the imported one."""
    spec = importlib.util.find_spec("pyspark_odradek.table_sinks.iceberg_sink")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_version_without_a_class_for_too_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded_again()  # with all that pyiceberg imports itself
    monkeypatch.delattr(exceptions, "TooManyRequestsError", raising=False)
    assert exceptions.ServiceUnavailableError in loaded_again().PASSING


def test_a_catalog_whose_client_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = IcebergStore(tmp_path)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.hive", None)
    with pytest.raises(OptionError, match=r"catalog default: Apache Hive support not installed: pip install"):
        writer(store, **{"catalog.type": "hive", "catalog.uri": "thrift://127.0.0.1:1"})  # type: ignore[arg-type]  # options by name


@pytest.mark.parametrize("name", ["NoSuchNamespaceError", "NoSuchTableError", "SignError", "ValidationException"])
def test_a_refusal_of_the_catalog_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    def refuses(*args: Any, **named: Any) -> None:
        raise getattr(exceptions, name)("it said no.")

    store = IcebergStore(tmp_path)
    made = writer(store)
    found = left(made, TASK, [(1, "a")])
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", refuses)
        with pytest.raises(ClusterError, match=r"batch 0 was refused by shop\.orders: it said no\. Nothing of it"):
            made.commit_once(TASK, [found])
    assert made.commit_once(TASK, [found])
    assert store.rows() == [(1, "a")]
