"""`moeshapes lint` from end to end: folders, baselines, waivers."""

from __future__ import annotations

import json
import re
import shutil
from datetime import date
from pathlib import Path

import pytest

from moeshapes.waiver import read_waivers
from process import run_moeshapes
from small_repository import TABLE, tuned_line, write_small_repository
from table_text import text, write

WAIVER = """\
waivers:
  - {rule: MOE163, file: tiny_tuned_fmoe.csv, rows: "token=8", reason: planted, until: 2999-12-31}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = write_small_repository(tmp_path / "repository", tuned_line(8, err1="19.4%"))
    assert run_moeshapes("generate", cwd=root).returncode == 0
    return root


def rules(root: Path, *options: str) -> set[str]:
    done = run_moeshapes("lint", "--format", "json", *options, cwd=root)
    assert done.returncode in (0, 1), done.stderr
    return {finding["rule"] for finding in json.loads(done.stdout)}


def test_a_waiver_is_counted_and_its_finding_gone(repository: Path) -> None:
    assert run_moeshapes("lint", cwd=repository).returncode == 1
    assert "MOE163" in rules(repository)
    (repository / "waivers.yaml").write_text(WAIVER)
    for command in ("lint", "check"):
        done = run_moeshapes(command, cwd=repository)
        assert done.returncode == 0, done.stdout
        assert done.stderr.rstrip().endswith(", 1 waived")
    (repository / "waivers.yaml").write_text(WAIVER.replace("2999", "2019"))
    assert {"MOE163", "MOE140"} <= rules(repository)


def copy_of(repository: Path) -> Path:
    return write(repository / "other_tuned_fmoe.csv", (repository / TABLE).read_bytes())


def test_a_waiver_that_waives_nothing_is_said(repository: Path) -> None:
    (repository / "waivers.yaml").write_text(WAIVER.replace("token=8", "token=16"))
    assert "MOE141" in rules(repository)
    assert "MOE141" not in rules(repository, str(copy_of(repository))), "other tables may have its rows"


def test_whose_declarations_judge_another_table_is_said(repository: Path, tmp_path: Path) -> None:
    table = str(copy_of(repository))
    said = f"judged with what {repository / 'shapes'} declares"
    assert said in run_moeshapes("lint", table, cwd=repository).stderr
    assert said not in run_moeshapes("lint", table, cwd=tmp_path).stderr


def test_only_what_is_not_in_the_baseline_blocks(repository: Path) -> None:
    written = run_moeshapes("lint", "--write-baseline", "baseline.json", cwd=repository)
    assert written.returncode == 0
    assert written.stdout == ""
    for command in ("lint", "check"):
        done = run_moeshapes(command, "--baseline", "baseline.json", cwd=repository)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.rstrip().endswith(" in the baseline")
    write(repository / TABLE, text(tuned_line(1, err1="35.8%"), tuned_line(8, err1="19.4%")))
    done = run_moeshapes("lint", "--baseline", "baseline.json", cwd=repository)
    assert done.returncode == 1
    assert f"{TABLE}:2: error MOE163" in done.stdout
    assert "19.4%" not in done.stdout


def test_a_broken_baseline_is_a_finding(repository: Path) -> None:
    (repository / "baseline.json").write_text("{")
    assert "MOE143" in rules(repository, "--baseline", "baseline.json")
    both = run_moeshapes("lint", "--baseline", "baseline.json", "--write-baseline", "x.json", cwd=repository)
    assert both.returncode == 2


def test_a_folder_stands_for_its_tuned_tables(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    shutil.copytree(repository / "generated", folder)
    done = run_moeshapes("lint", str(folder), cwd=tmp_path)
    assert done.returncode == 1
    assert "1 readable row in 1 table" in done.stderr


@pytest.mark.parametrize("content", ["token,model_dim\n8,5120\n", "root:x:0:0:root:/root:/bin/bash\n"])
def test_what_is_no_tuned_table_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "demo_untuned_fmoe.csv").write_text(content)
    for path in ("demo_untuned_fmoe.csv", "."):
        done = run_moeshapes("lint", path, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "tuned fused-MoE table" in done.stderr


def test_many_findings_are_tallied_by_rule_errors_first(repository: Path) -> None:
    write(repository / TABLE, text(*(tuned_line(8, err1="19.4%") for _ in range(20))))
    done = run_moeshapes("lint", cwd=repository)
    tally = [line.split()[:3] for line in done.stderr.splitlines()[:-1]]
    assert [int(count) for count, *_ in tally] == [done.stdout.count(f" {rule} ") for _, _, rule in tally]
    severities = [severity for _, severity, _ in tally]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert len(tally) > 1
    errors = run_moeshapes("lint", "--errors", cwd=repository)
    assert (errors.returncode, ": warning " in errors.stdout) == (1, False)
    assert ": error MOE163" in errors.stdout


def test_annotations_stand_at_the_row(repository: Path) -> None:
    done = run_moeshapes("lint", "--format", "github", cwd=repository)
    assert f"::error file={TABLE},line=2,title=MOE163::err1 of `" in done.stdout


def test_all_of_aiters_tables_are_linted(aiter_configs: Path, tmp_path: Path) -> None:
    done = run_moeshapes("lint", "--format", "json", str(aiter_configs), cwd=tmp_path)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert all(finding["line"] > 1 and finding["remedy"] for finding in found)
    assert "2381 readable rows in 31 tables" in done.stderr


def test_the_readme_shows_what_lint_prints(root: Path, aiter_configs: Path, tmp_path: Path) -> None:
    section = (root / "README.md").read_text().partition("## Rules, waivers, baselines")[2].partition("\n## ")[0]
    shutil.copy(aiter_configs / "model_configs" / "glm47_fp8_tuned_fmoe.csv", tmp_path)
    shown = "".join(re.findall(r"```console\n(.*?)```", section, re.DOTALL))
    commands = re.findall(r"^\$ moeshapes (.*)$", shown, re.MULTILINE)
    printed = ""
    for command in commands:
        done = run_moeshapes(*command.split(), cwd=tmp_path)
        printed += f"$ moeshapes {command}\n{done.stdout}{done.stderr}"
    assert printed == shown
    assert len(commands) == 3
    (waivers,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (tmp_path / "waivers.yaml").write_text(waivers)
    assert read_waivers(tmp_path, date(2026, 1, 1))[1] == []
