"""The Iceberg sink with a REST catalog that crashes, is down, or refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pyspark_odradek.errors import ClusterError
from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.table_sinks import table_sink
from tests.spark.stores import IcebergStore, commit, ids, left, writer
from tests.support.nodes.rest_catalog import RestCatalog, require_rest_catalog

pytest.importorskip("pyiceberg", reason='needs pyiceberg: pip install "odradek[iceberg]"')


class RestStore(IcebergStore):
    """Tables of a REST catalog."""

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        super().__init__(folder)
        self.properties = properties
        self.options = {"sink": "iceberg", "table": "shop.orders"}
        self.options |= {f"catalog.{name}": value for name, value in properties.items()}


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A catalog that responds to every request with one status, with the error of the REST specification."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"error": {"message": "it said no", "type": "SomeException", "code": %d}}' % status
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_a_catalog_that_refuses_is_one_sentence(tmp_path: Path, status: int) -> None:
    with answering(status) as uri:
        store = RestStore(tmp_path, {"type": "rest", "uri": uri})
        with pytest.raises(
            ClusterError, match=r"^the table shop\.orders cannot be loaded from its catalog: .*it said no"
        ):
            writer(store)


def test_a_missing_catalog_is_one_sentence(tmp_path: Path) -> None:
    store = RestStore(tmp_path, {"type": "rest", "uri": "http://127.0.0.1:1"})
    with pytest.raises(ClusterError, match=r"^the table shop\.orders cannot be loaded from its catalog: .*refused"):
        writer(store)


@pytest.mark.slow
def test_a_catalog_that_does_not_respond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response to a commit is lost; then the catalog is down for longer than the sink retries."""
    require_rest_catalog()
    from pyiceberg.table import Transaction

    commits = Transaction.commit_transaction

    def unanswered(self: Any) -> None:
        commits(self)
        raise ConnectionError("the answer is lost")

    with RestCatalog(tmp_path) as catalog:
        store = RestStore(tmp_path, catalog.properties)
        made = writer(store)
        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "commit_transaction", unanswered)
            assert not commit(made, 0, range(10)), "the batch is found to be there"
        assert ids(store) == list(range(10))
        monkeypatch.setattr(table_sink, "PATIENCE_S", 1.0)
        found = left(made, Task("query", "run", 1, 0, 0), [(10, "a")])
        catalog.kill()
        with pytest.raises(ClusterError, match=r"^batch 1 could not be written to shop\.orders in 1 s: .*refused"):
            made.commit_once(Task("query", "run", 1, 0, 0), [found])


@pytest.mark.slow  # the catalog starts four times
def test_a_catalog_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is killed before a commit, which waits; after a commit, whose response is lost; and for too long."""
    require_rest_catalog()
    from pyiceberg.table import Transaction

    with RestCatalog(tmp_path) as catalog:
        store = RestStore(tmp_path, catalog.properties)
        made = writer(store)
        assert commit(made, 0, range(10))

        commits = Transaction.commit_transaction
        starts: list[threading.Thread] = []

        def dies() -> None:
            catalog.kill()
            starts.append(threading.Thread(target=catalog.start))
            starts[-1].start()

        def dies_before(self: Any) -> Any:
            if not starts:
                dies()
            return commits(self)

        def dies_after(self: Any) -> None:
            commits(self)
            dies()
            raise ConnectionError("the answer is lost")

        for batch_id, dying in enumerate((dies_before, dies_after), start=1):
            with monkeypatch.context() as patch:
                patch.setattr(Transaction, "commit_transaction", dying)
                wrote = commit(made, batch_id, range(10 * batch_id, 10 * batch_id + 10))
            assert wrote is (dying is dies_before), "after its death the batch is found to be there"
            starts[-1].join()
        assert len(starts) == 2 and ids(store) == list(range(30))

        monkeypatch.setattr(table_sink, "PATIENCE_S", 1.0)
        task = Task("query", "run", 3, 0, 0)
        found = left(made, task, [(30, "a")])
        catalog.kill()
        with pytest.raises(ClusterError, match=r"^batch 3 could not be written to shop\.orders in 1 s: .*refused"):
            made.commit_once(task, [found])
        catalog.start()
        assert made.commit_once(task, [found])
        assert ids(store) == list(range(31))
