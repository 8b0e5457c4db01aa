"""The command line's frame: exit statuses, laziness, and how findings reach people and machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from moeshapes import cli
from moeshapes.commands.options import format_option, root_option
from moeshapes.commands.outcome import show
from moeshapes.findings import Finding, Place
from moeshapes.rule import RULES, Rule, Severity
from process import environment


def unregistered_rule(severity: Severity) -> Rule:
    """A rule of a test must not enter the registry that documentation is made from."""
    rule = Rule("MOE999", "made-up", severity, what="wrong", why="because", fix="mend it")
    del RULES[rule.id]
    return rule


ERROR, WARNING = unregistered_rule(Severity.ERROR), unregistered_rule(Severity.WARNING)

Action = Callable[..., object]
Pretend = Callable[[Action], None]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Makes the command `pretend` do what the test says."""

    def install(action: Action) -> None:
        module = types.ModuleType("moeshapes.commands.pretend")
        module.command = click.command("pretend")(action)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(cli, "COMMANDS", {"pretend": "do what a test says"})

    return install


def raising(error: BaseException) -> Action:
    def action() -> object:
        raise error

    return action


@pytest.mark.parametrize(
    ("outcome", "status", "said"),
    [
        (lambda: None, 0, ""),
        (lambda: 1, 1, ""),
        (raising(click.UsageError("no such thing")), 2, "no such thing"),
        (
            raising(FileNotFoundError(2, "No such file or directory", "rows.csv")),
            2,
            "No such file or directory: 'rows.csv'",
        ),
        (raising(KeyboardInterrupt()), 130, "moeshapes: interrupted"),
        (raising(RuntimeError("surprise")), 3, "moeshapes: unexpected RuntimeError: surprise; see "),
    ],
)
def test_outcomes_and_statuses(
    pretend: Pretend,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    outcome: Action,
    status: int,
    said: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pretend(outcome)
    assert cli.status_of(["pretend"]) == status
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_the_log_of_a_surprise_has_versions_and_traceback(
    pretend: Pretend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pretend(raising(RuntimeError("surprise")))
    cli.status_of(["pretend"])
    log = Path(capsys.readouterr().err.strip().rpartition("see ")[2])
    assert log.parent == tmp_path
    text = log.read_text()
    assert text.startswith("moeshapes ")
    assert "\npython 3." in text
    assert "RuntimeError: surprise" in text


@pytest.mark.parametrize("arguments", [["no-such-command"], ["check", "--no-such-option"], []])
def test_bad_usage_cannot_run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status_of(arguments) == 2
    assert "moeshapes" in capsys.readouterr().err


def test_a_command_whose_extra_is_missing_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> object:
        raise ModuleNotFoundError(f"No module named 'torch' for {name}", name="torch")

    monkeypatch.setattr("importlib.import_module", fail)
    assert cli.status_of(["--help"]) == 0
    assert cli.status_of(["verify"]) == 2
    assert "needs torch, which a base install lacks: pip install 'moeshapes[verify]'" in capsys.readouterr().err


def test_every_command_has_its_module_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status_of(["--help"]) == 0
    helped = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert f"\n  {name} " in helped
        status, refused = cli.status_of([name, "--help"]), capsys.readouterr().err
        assert status == 0 or (find_spec("torch") is None and "a base install lacks" in refused)


def test_a_root_is_found_upwards_or_named(
    pretend: Pretend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(root_option(lambda root: click.echo(root)))
    monkeypatch.chdir(tmp_path)
    assert cli.status_of(["pretend"]) == 2
    assert "give --root DIR" in capsys.readouterr().err
    for name in ("models", "shapes/deep"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shapes" / "deep")
    assert cli.status_of(["pretend"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path)


def showing(*findings: Finding) -> Action:
    return format_option(lambda style: show(findings, style))


@pytest.mark.parametrize(("rule", "status"), [(ERROR, 1), (WARNING, 0)])
def test_only_errors_change_the_status(
    pretend: Pretend, capsys: pytest.CaptureFixture[str], rule: Rule, status: int
) -> None:
    pretend(showing(Finding(rule, Place("rows.csv", 3), "odd")))
    assert cli.status_of(["pretend"]) == status
    shown = capsys.readouterr()
    assert shown.out == f"rows.csv:3: {rule.severity.value} MOE999 odd\n    fix: mend it\n"
    assert shown.err == f"moeshapes pretend: 1 {rule.severity.value}\n"


def test_json_is_an_array_even_when_empty(pretend: Pretend, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(showing())
    assert cli.status_of(["pretend", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_reader_that_left_is_no_error(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "moeshapes", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_terminal_that_lacks_characters_gets_their_escapes(tmp_path: Path, encoding: str) -> None:
    for name in ("models", "shapes"):
        (tmp_path / name).mkdir()
    (tmp_path / "no.log").write_text("nothing\n")
    command = [sys.executable, "-m", "moeshapes", "import", "no.log"]  # its remedy has an ellipsis
    where = {**environment(), "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, cwd=tmp_path, env=where, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    assert b"[fused_moe] using" in done.stdout
