"""`odradek dump-log`: print log segments, indexes, snapshots and checkpoints of Odradek and Kafka.

Lines have the labels of Kafka's own dumper, so that what was written to read those reads ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.errors import FAILED, NOT_FOUND, USAGE, CliError, report

if TYPE_CHECKING:
    from odradek.cli.log_files import DumpOptions
    from odradek.cli.log_records import Decoder

app = typer.Typer(add_completion=False)


@app.command()
def dump_log(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Files, or directories of partitions, whose files are then printed.", show_default=False),
    ] = None,
    files_option: Annotated[str, typer.Option("--files", help="The same, separated by commas.", metavar="FILES")] = "",
    print_data_log: Annotated[bool, typer.Option("--print-data-log", help="Keys and values of records too.")] = False,
    deep_iteration: Annotated[bool, typer.Option("--deep-iteration", help="Each record, without its content.")] = False,
    offsets_decoder: Annotated[bool, typer.Option("--offsets-decoder", help="Records of __consumer_offsets.")] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Records of __transaction_state.")
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool, typer.Option("--cluster-metadata-decoder", help="Records of __cluster_metadata.")
    ] = False,
    share_group_state_decoder: Annotated[
        bool, typer.Option("--share-group-state-decoder", help="Records of __share_group_state.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Print nothing; only say where a file is damaged.")
    ] = False,
    max_bytes: Annotated[int | None, typer.Option("--max-bytes", help="So many bytes of a log.", min=1)] = None,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Of a record only key and value.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each entry.")] = False,
) -> None:
    """Print the entries of files of a log directory.

    Internal topics are recognized by their directory and decoded; the decoder options do it for files elsewhere. Ends
    with 1, and one line for each place, where a file is damaged.
    """
    from odradek.cli.log_files import DumpOptions
    from odradek.cli.log_records import Decoder

    decoder = _one_of(
        (
            (offsets_decoder, Decoder.GROUP),
            (transaction_log_decoder, Decoder.TRANSACTION),
            (cluster_metadata_decoder, Decoder.CLUSTER_METADATA),
            (share_group_state_decoder, Decoder.SHARE),
        )
    )
    paths = [*(files or []), *map(Path, filter(None, files_option.split(",")))]
    if not paths:
        raise CliError("name files of a log directory, or the directory of a partition", code=USAGE)
    options = DumpOptions(print_data_log or deep_iteration, decoder, max_bytes)
    output = _Output()
    if not verify_index_only:
        text = _Text(content=print_data_log or decoder is not None, metadata=not skip_record_metadata)
        output = _Json() if as_json else text
    damages = sum(_dump(path, options, output, as_json=as_json) for path in _expanded(paths))
    if damages:
        raise typer.Exit(FAILED)


def _one_of(asked: Iterable[tuple[bool, Decoder]]) -> Decoder | None:
    """The selected decoder; None if there is none."""
    chosen = [decoder for given, decoder in asked if given]
    if len(chosen) > 1:
        raise CliError("a log has one kind of records; choose one of the decoders", code=USAGE)
    return chosen[0] if chosen else None


def _expanded(paths: list[Path]) -> list[Path]:
    from odradek.cli.log_files import kind_of

    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise CliError(f"{path} does not exist; name a file of a log directory", code=NOT_FOUND)
        if kind_of(path) is None and not path.is_dir():
            raise CliError(f"{path} is no .log, .index, .timeindex, .txnindex, .snapshot or checkpoint", code=USAGE)
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(child for child in path.iterdir() if child.is_file() and kind_of(child) is not None)
        if not inside:
            raise CliError(f"{path} has no files of a log; name the directory of a partition", code=NOT_FOUND)
        found += inside
    return found


def _dump(path: Path, options: DumpOptions, output: _Output, *, as_json: bool) -> int:
    """Print a file; returns the number of damaged places. Each is a line on standard error."""
    from odradek.cli.log_files import Damage, read_entries

    damages = 0
    output.begin(path)
    try:
        for entry in read_entries(path, options):
            if isinstance(entry, Damage):
                damages += 1
                sys.stdout.flush()
                what = f"damaged {entry}" if entry.position is not None else str(entry)
                report(CliError(f"{path}: {what}"), sys.stderr, as_json=as_json)
            else:
                output.show(path, entry)
    except FileNotFoundError:
        raise CliError(f"{path} was deleted while it was read; retention may have done it", code=NOT_FOUND) from None
    except ValueError as error:
        raise CliError(f"{path}: {error}", code=USAGE) from None
    return damages


class _Output:
    """The output of entries: none."""

    def begin(self, path: Path) -> None:
        pass

    def show(self, path: Path, entry: dict[str, Any]) -> None:
        pass


class _Json(_Output):
    """Prints each entry as a line of JSON."""

    def show(self, path: Path, entry: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"file": str(path), **entry}, ensure_ascii=False) + "\n")


class _Text(_Output):
    """Prints entries as lines, below a heading for each file."""

    def __init__(self, *, content: bool, metadata: bool) -> None:
        self._content = content
        self._metadata = metadata
        self._is_first = True

    def begin(self, path: Path) -> None:
        typer.echo(f"{'' if self._is_first else chr(10)}Dumping {path}")
        self._is_first = False
        if path.suffix == ".log" and path.stem.isdigit():
            typer.echo(f"Log starting offset: {int(path.stem)}")

    def show(self, path: Path, entry: dict[str, Any]) -> None:
        sys.stdout.write(self._line(entry) + "\n")

    def _line(self, entry: dict[str, Any]) -> str:
        kind = entry["kind"]
        if kind == "record":
            return self._record(entry)
        if kind == "property":
            return f"{entry['key']}: {_shown(entry['value'])}"
        labels = _LABELS[kind]
        parts = []
        for name, value in entry.items():
            label = labels.get(name)
            if label is None or value is None:
                continue
            parts.append(f"{label}: {str(value).lower() if isinstance(value, bool) else value}")
        if kind == "batch":
            parts.insert(-5, f"{entry['timestamp_type']}: {entry['timestamp_ms']}")
        return " ".join(parts)

    def _record(self, entry: dict[str, Any]) -> str:
        parts = ["|"]
        if self._metadata:
            parts.append(f"offset: {entry['offset']} {entry['timestamp_type']}: {entry['timestamp_ms']}")
            parts.append(f"keySize: {entry['key_size']} valueSize: {entry['value_size']}")
            parts.append(f"sequence: {entry['sequence']} headerKeys: [{','.join(entry['headers'])}]")
        if "control" in entry:
            parts.append(f"{entry['control']['type']}: {_shown(entry['control']['data'])}")
        elif self._content or (isinstance(entry["value"], dict) and "type" in entry["value"]):
            if entry["key"] is not None:
                parts.append(f"key: {_shown(entry['key'])}")
            if entry["value"] is not None:
                parts.append(f"payload: {_shown(entry['value'])}")
        return " ".join(parts)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_LABELS: dict[str, dict[str, str]] = {
    "batch": {
        "base_offset": "baseOffset",
        "last_offset": "lastOffset",
        "count": "count",
        "base_sequence": "baseSequence",
        "last_sequence": "lastSequence",
        "producer_id": "producerId",
        "producer_epoch": "producerEpoch",
        "partition_leader_epoch": "partitionLeaderEpoch",
        "is_transactional": "isTransactional",
        "is_control": "isControl",
        "delete_horizon_ms": "deleteHorizonMs",
        "position": "position",
        "size": "size",
        "magic": "magic",
        "compression": "compresscodec",
        "crc": "crc",
        "is_valid": "isvalid",
    },
    "index": {"offset": "offset", "position": "position"},
    "timeindex": {"timestamp_ms": "timestamp", "offset": "offset"},
    "txnindex": {
        "version": "version",
        "producer_id": "producerId",
        "first_offset": "firstOffset",
        "last_offset": "lastOffset",
        "last_stable_offset": "lastStableOffset",
    },
    "producer": {
        "producer_id": "producerId",
        "producer_epoch": "producerEpoch",
        "coordinator_epoch": "coordinatorEpoch",
        "transaction_start": "currentTxnFirstOffset",
        "last_timestamp_ms": "lastTimestamp",
        "first_sequence": "firstSequence",
        "last_sequence": "lastSequence",
        "last_offset": "lastOffset",
        "offset_delta": "offsetDelta",
    },
    "epoch": {"leader_epoch": "leaderEpoch", "start_offset": "startOffset"},
    "offset": {"topic": "topic", "partition": "partition", "offset": "offset"},
}
