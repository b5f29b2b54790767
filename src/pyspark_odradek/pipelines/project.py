"""The files of a pipeline: Spark's spec, the folder of the state, and a template for a first project."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark_odradek.pipelines import PipelineError

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_SPEC = """\
# A pipeline for `odradek pipeline` and for `spark-pipelines`; paths of libraries are relative to this file.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

_PYTHON = '''\
"""From the topic {topic} into a table; rows that break a rule are kept apart."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from pyspark_odradek.expectations import expect

spark = SparkSession.active()
CLUSTER = {{"kafka.bootstrap.servers": "{bootstrap}"}}


@dp.temporary_view
def arrivals() -> DataFrame:
    """Lines of `page seconds`, as anybody can type them into `odradek produce`."""
    return (
        spark.readStream.format("odradek")
        .options(**CLUSTER)
        .option("subscribe", "{topic}")
        .option("startingOffsets", "earliest")
        .load()
    )


@dp.table
@expect(count={{"short": "seconds < 3600"}}, quarantine={{"readable": "page <> '' AND seconds >= 0"}})
def visits() -> DataFrame:
    """One row for each line; lines that cannot be read are in visits_quarantine."""
    words = "split(trim(STRING(value)), ' +')"
    return spark.readStream.table("arrivals").selectExpr(
        f"get({{words}}, 0) AS page", f"try_cast(get({{words}}, 1) AS INT) AS seconds", "timestamp AS at"
    )


dp.create_sink("long_visits", "odradek", {{**CLUSTER, "topic": "{topic}-long", "createTopic": "true"}})


@dp.append_flow(target="long_visits")
def tell_of_long_visits() -> DataFrame:
    """Visits of a minute or more, as records of another topic, each exactly once."""
    return (
        spark.readStream.table("visits").where("seconds >= 60").selectExpr("page AS key", "to_json(struct(*)) AS value")
    )
'''

_SQL = """\
-- A streaming table takes what is new; a materialized view is recomputed by each run.
CREATE STREAMING TABLE quick_visits AS
SELECT page, seconds, at FROM STREAM visits WHERE seconds < 10;

CREATE MATERIALIZED VIEW pages AS
SELECT page, count(*) AS visits, sum(seconds) AS seconds FROM visits GROUP BY page;
"""


@dataclass(frozen=True)
class Project:
    """The checked spec of a pipeline.

    `storage` is Spark's folder; `state` is our local folder below it (`notes.py`).
    """

    spec_path: Path
    name: str
    storage: str
    root: Path
    catalog: str | None
    database: str | None
    configuration: Mapping[str, str]
    spec: Any

    @property
    def state(self) -> Path:
        return self.root / "_odradek"


def find_spec(given: str | None, where: Path) -> Path:
    """The given spec, as a file or its folder; without one, that of the nearest parent folder. Raises PipelineError."""
    if given is not None:
        path = Path(given)
        if path.is_dir():
            return _one_of(path) or _missing(f"{path} has no {' or '.join(SPEC_NAMES)}")
        return path if path.is_file() else _missing(f"{path} does not exist")
    for folder in (where, *where.parents):
        found = _one_of(folder)
        if found is not None:
            return found
    return _missing(f"no {SPEC_NAMES[0]} here or in a folder above")


def _one_of(folder: Path) -> Path | None:
    found = [folder / name for name in SPEC_NAMES if (folder / name).is_file()]
    if len(found) > 1:
        raise PipelineError(f"{folder} has two specs, {found[0].name} and {found[1].name}; remove one")
    return found[0] if found else None


def _missing(what: str) -> Path:
    raise PipelineError(f"{what}; name a spec with --spec, or make a project with `odradek pipeline init NAME`")


def load(path: Path) -> Project:
    """Read a spec with Spark's own reader. Raises PipelineError."""
    import yaml
    from pyspark.errors import PySparkException
    from pyspark.pipelines.cli import unpack_pipeline_spec

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise PipelineError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    except UnicodeDecodeError:
        raise PipelineError(f"{path}: no text in UTF-8") from None
    if not isinstance(data, dict):
        raise PipelineError(f"{path}: a spec has `name:` and `storage:`; this is {type(data).__name__}")
    for name in ("name", "storage"):
        if name in data and not isinstance(data[name], str):
            raise PipelineError(f"{path}: {name} is a text, not {data[name]!r}")
    try:
        spec = unpack_pipeline_spec(data)
    except PySparkException as error:
        raise PipelineError(f"{path}: {' '.join(str(error).split())}") from None
    except (TypeError, KeyError, AttributeError):
        raise PipelineError(f"{path}: libraries are written `- glob: {{include: transformations/**}}`") from None
    return Project(
        spec_path=path.resolve(),
        name=spec.name,
        storage=spec.storage,
        root=_local(path, spec.storage),
        catalog=spec.catalog,
        database=spec.database,
        configuration=dict(spec.configuration),
        spec=spec,
    )


def _local(path: Path, storage: str) -> Path:
    parts = urlsplit(storage)
    if parts.scheme not in ("", "file"):
        raise PipelineError(
            f"{path}: storage {storage} is on {parts.scheme}; `odradek pipeline` keeps its notes there "
            "and wants a local or mounted folder, file:///..."
        )
    root = Path(unquote(parts.path))
    if not root.is_absolute():
        raise PipelineError(f"{path}: storage is an absolute path, as Spark wants it: file://{Path(storage).resolve()}")
    return root


def init(name: str, where: Path, *, bootstrap: str, topic: str) -> Path:
    """Create a project in a new folder: a spec, a Python file and an SQL file. Returns the folder.

    Raises:
        PipelineError: the name is invalid for a folder or a pipeline, or the folder exists.
    """
    if not _NAME.fullmatch(name):
        raise PipelineError(f"{name!r} is not a name for a pipeline: letters, digits and _, a letter first")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic):
        raise PipelineError(
            f"{topic!r} is not a name of a topic: letters, digits, '.', '_' and '-', at most 249 of them"
        )
    if any(letter in bootstrap for letter in '"\\\n{}'):
        raise PipelineError(f"{bootstrap!r} is not a list of host:port")
    folder = where.resolve() / name
    if folder.exists():
        raise PipelineError(f"{folder} exists; choose another name, or remove it")
    (folder / "transformations").mkdir(parents=True)
    (folder / "storage").mkdir()
    storage = (folder / "storage").as_uri()
    (folder / SPEC_NAMES[0]).write_text(_SPEC.format(name=name, storage=storage), encoding="utf-8")
    (folder / "transformations/visits.py").write_text(
        _PYTHON.format(bootstrap=bootstrap, topic=topic), encoding="utf-8"
    )
    (folder / "transformations/pages.sql").write_text(_SQL, encoding="utf-8")
    return folder
