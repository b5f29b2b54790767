"""The root of the command line: help without heavy imports, errors of one line, exit codes, completion."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from odradek.cli import errors
from odradek.cli.app import COMMANDS, load, run
from odradek.common.errors import ApiError, ConfigError, ErrorCode

# Modules that the help of a command does not need, and that are slow to import.


def leaves(words: list[str], command: object) -> list[list[str]]:
    """All commands that do something, as words."""
    below = getattr(command, "commands", None)
    if not below:
        return [words if len(words) > 1 else [*words, ""]]
    return [leaf for name, sub in below.items() for leaf in leaves([*words, name], sub)]


SUBCOMMANDS = [leaf for name in COMMANDS for leaf in leaves([name], load(name))]

# These print one value, or the lines of a log.
ONE_VALUE = (
    *(["broker", ""], ["random-uuid", ""], ["storage", "random-uuid"], ["storage", "format"]),
    ["console", "password"],
    ["capture", "run"],
    ["merge", ""],
)


def test_every_command_is_there() -> None:
    assert {"topics", "produce", "consume", "groups", "configs", "cluster", "dump-log"} <= COMMANDS.keys()
    assert len(SUBCOMMANDS) > 20


@pytest.mark.parametrize("command", SUBCOMMANDS, ids=" ".join)
def test_help_of_every_command(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*filter(None, command), "--help"]) == errors.OK
    shown = capsys.readouterr()
    assert "Usage" in shown.out
    assert not shown.err


@pytest.mark.parametrize("command", SUBCOMMANDS, ids=" ".join)
def test_help_cuts_no_name(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = [*filter(None, command)]
    run([*words, "--help"])
    shown = capsys.readouterr().out
    found = load(words[0])
    if len(words) > 1:
        found = found.commands[words[1]]
    for parameter in found.params:
        for name in (*(each for each in parameter.opts if each.startswith("-")), parameter.envvar or ""):
            assert name in shown, shown


@pytest.mark.parametrize("name", [name for name in COMMANDS if getattr(load(name), "commands", None)])
def test_a_list_of_commands_cuts_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([name, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for below in load(name).commands.values():
        assert " ".join((below.help or "").partition("\n\n")[0].split()) in shown


@pytest.mark.parametrize("command", [each for each in SUBCOMMANDS if each not in ONE_VALUE], ids=" ".join)
def test_commands_with_output_have_json(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run([*filter(None, command), "--help"])
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch"], "odradek: No such command 'nosuch'; see `odradek --help`"),
        (["topic"], "odradek: No such command 'topic'; did you mean topics?; see `odradek --help`"),
        (["topics", "creat"], "odradek topics: No such command 'creat'; did you mean create?; see `odradek topics"),
        (["--nosuch"], "odradek: No such option: --nosuch; see `odradek --help`"),
        (["topics", "nosuch"], "odradek topics: No such command 'nosuch'; see `odradek topics --help`"),
        (["topics", "create"], "odradek: say which topic: name it behind the command, or with --topic"),
        (["topics", "delete"], "odradek: say which topic: name it behind the command, or with --topic"),
        (["topics", "alter", "t"], "odradek: say how many partitions it shall have: --partitions"),
        (["topics", "describe", "t", "-t", "u"], "odradek: say which topic: t, or --topic u"),
        (["produce"], "odradek: say which topic: name it behind the command, or with --topic"),
        (["consume"], "odradek: say which topic: name it behind the command, or with --topic"),
        (["consume", "t", "u"], "odradek: several topics need --group"),
        (["groups", "explain"], "odradek groups explain: Missing argument"),
        (
            ["topics", "create", "--topic", "t", "--partitions", "many"],
            "odradek topics create: Invalid value for '--partitions'",
        ),
        (["configs", "describe"], "odradek: say whose settings: one of --topic, --broker, --group, or --entity-type"),
        (["configs", "alter", "--topic", "t"], "odradek: nothing to change: give --add-config"),
        (["configs", "describe", "--broker", "one"], "odradek: a broker's name is its id, not 'one'"),
        (["groups", "describe"], "odradek: say which groups: --group NAME, or --all-groups"),
        (["groups", "reset", "--group", "g", "--topic", "t"], "odradek: say where to, once: --to-earliest"),
        (["groups", "reset", "--group", "g", "--to-latest"], "odradek: say which topics: --topic NAME"),
        (["consume", "--topic", "t", "--offset", "3"], "odradek: --offset needs --partition"),
        (["produce", "--topic", "t", "--key", "k", "--key-separator", ":"], "odradek: --key gives all records one key"),
        (["dump-log"], "odradek: name files of a log directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_invalid_command_line_is_an_error_of_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some are found out only once the cluster is asked for: no broker may listen there.
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:1")
    code = run(arguments)
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith(said), shown.err
    assert shown.err.count("\n") == 1
    assert code == (
        errors.UNREACHABLE if arguments == ["groups", "describe"] and "connect" in shown.err else errors.USAGE
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["console", "--config", "/none"], errors.BAD_CONFIG, "/none: No such file"),
        (["doctor", "--config", "/none"], errors.BAD_CONFIG, "/none: cannot be read"),
        (["doctor", "--directory", "/dev/null/data"], errors.FAILED, "a log directory cannot be written to"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_properties_file_overrides_the_cluster_of_the_environment(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:1")
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert said in shown.out + shown.err


@pytest.mark.parametrize(
    ("arguments", "code", "name", "said"),
    [
        (["topics", "list", "--command-config", "/no\033where"], errors.BAD_CONFIG, None, "No such file"),
        (["topic", "list"], errors.USAGE, None, "did you mean topics?"),
        (["topics", "list", "--nosuch"], errors.USAGE, None, "No such option: --nosuch"),
        (["produce"], errors.USAGE, None, "say which topic"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_json_with_the_json_flag(
    arguments: list[str], code: int, name: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--json"]) == code
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.count("\n") == 1
    found = json.loads(shown.err)
    assert said in found.pop("error")
    assert found == {"name": name, "exit_code": code}


def test_a_bare_group_of_commands_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics"]) == errors.USAGE
    shown = capsys.readouterr()
    assert "create" in shown.out + shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=TLS", "security.protocol=TLS is unknown; it is one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=NTLM",
            "sasl.mechanism=NTLM is not supported; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI are",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.jaas.config=org.example.PlainLoginModule required;",
            "sasl.mechanism is GSSAPI, but sasl.jaas.config has another login module",
        ),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN", "sasl.jaas.config must hold username and password"),
        ("request.timeout.ms=soon", "a timeout of 'soon' is not a number of milliseconds"),
        (
            "security.protocol=SSL\nssl.truststore.location=/nowhere",
            "TLS: ssl.truststore.location=/nowhere: No such file",
        ),
        ("key=\\u12", "line 1: malformed"),
    ],
)
def test_a_wrong_command_config(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "client.properties")
    Path(path).write_text(text)
    assert run(["topics", "list", "--bootstrap-server", "127.0.0.1:1", "--command-config", path]) == errors.BAD_CONFIG
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    missing = path + ".missing"
    assert run(["topics", "list", "--command-config", missing]) == errors.BAD_CONFIG
    assert "No such file" in capsys.readouterr().err


def test_kerberos_without_its_extra_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)  # as where it is not installed
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI")
    assert run(["topics", "list", "--command-config", str(path)]) == errors.BAD_CONFIG
    shown = capsys.readouterr().err
    assert 'sasl.mechanism=GSSAPI: GSSAPI needs the extra: pip install "odradek[kerberos]"' in shown
    assert shown.count("\n") == 1


def test_the_output_and_exit_code_of_errors() -> None:
    unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t: no such topic.")
    assert errors.lines(unknown) == [
        "topic t: no such topic (UNKNOWN_TOPIC_OR_PARTITION); `odradek topics list` shows which topics there are"
    ]
    assert errors.exit_code(unknown) == errors.NOT_FOUND
    assert errors.lines(ApiError(ErrorCode.NOT_CONTROLLER)) == ["NOT_CONTROLLER"]
    assert errors.exit_code(ApiError(ErrorCode.NOT_CONTROLLER)) == errors.FAILED
    assert errors.lines(ConfigError(["a", "b"])) == ["a", "b"]
    assert errors.exit_code(ConfigError(["a"])) == errors.BAD_CONFIG
    assert errors.lines(FileNotFoundError(2, "No such file", "x")) == ["x: No such file"]
    assert errors.exit_code(TimeoutError()) == errors.UNREACHABLE
    hints = set(errors._HINTS)
    assert hints <= set(ErrorCode.__members__), hints - set(ErrorCode.__members__)
