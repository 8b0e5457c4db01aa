"""Export into an AITER checkout: by key, all or nothing, and every other byte as it was."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from moeshapes.adopt import FULL_HEADER
from moeshapes.export import ExportResult, plan_export, write_export
from moeshapes.repository import load_declarations
from moeshapes.row import UNTUNED_COLUMNS
from process import run_moeshapes
from small_repository import (
    MODEL,
    SHAPE,
    TABLE,
    portable_line,
    tuned_cells,
    tuned_line,
    write_both_backends,
    write_small_repository,
)
from table_text import line, text, untuned_line, write

UNTUNED = "aiter/configs/model_configs/tiny_untuned_fmoe.csv"
OTHER_TABLE = TABLE.replace("tiny", "other")
TUNED = "aiter/configs/model_configs/tiny_tuned_fmoe.csv"
DIMS = {name: tuned_cells()[name] for name in ("model_dim", "inter_dim", "expert", "topk", "q_dtype_a")}


def untuned(token: int) -> str:
    return untuned_line(token=str(token), **DIMS)


def untuned_text(*lines: str) -> bytes:
    return text(*lines, header=UNTUNED_COLUMNS)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A repository that declares tokens 1 and 8, and has a tuned row for 8."""
    return write_small_repository(tmp_path / "ours", tuned_line(8))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "aiter" / "aiter" / "configs" / "model_configs").mkdir(parents=True)
    return tmp_path / "aiter"


def planned(ours: Path, checkout: Path) -> ExportResult:
    declarations, findings = load_declarations(ours)
    assert not findings
    return plan_export(ours, checkout / "aiter" / "configs", declarations)


def exported(ours: Path, checkout: Path) -> ExportResult:
    result = planned(ours, checkout)
    assert result.findings == ()
    write_export(result.changes)
    return result


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_files_that_are_not_there_are_made(ours: Path, checkout: Path) -> None:
    result = exported(ours, checkout)
    assert [(change.name, change.added) for change in result.changes] == [(UNTUNED, 2), (TUNED, 1)]
    assert (checkout / UNTUNED).read_bytes() == untuned_text(untuned(1), untuned(8))
    assert (checkout / TUNED).read_bytes() == (ours / TABLE).read_bytes()
    assert exported(ours, checkout).changes == ()


def of_two_models(tmp_path: Path) -> Path:
    """Tiny beside Other, which has tuned rows in the same general table and in one of its own."""
    ours = write_small_repository(tmp_path / "ours", tuned_line(8))
    other = (
        MODEL.replace("Tiny", "Other").replace("tiny", "other").replace("n_routed_experts: 8", "n_routed_experts: 16")
    )
    write(ours / "models/other.yaml", other.encode())
    write(ours / "shapes/other/tp2.yaml", SHAPE.replace("tiny", "other").encode())
    write(ours / OTHER_TABLE, text(tuned_line(8, expert="16")))
    return ours


def test_named_models_rows_alone_are_exported(checkout: Path, tmp_path: Path) -> None:
    ours = of_two_models(tmp_path)
    write(ours / TABLE, text(tuned_line(1, expert="16"), tuned_line(8), tuned_line(8, expert="99")))
    named = run_moeshapes("export", "Tiny", "--aiter", str(checkout), "--root", str(ours), cwd=tmp_path)
    assert named.returncode == 0, named.stdout + named.stderr
    assert set(snapshot(checkout)) == {UNTUNED, TUNED}
    assert (checkout / TUNED).read_bytes() == text(tuned_line(8))
    run_moeshapes("export", "--aiter", str(checkout), "--root", str(ours), cwd=tmp_path)
    assert len(snapshot(checkout)) == 4


def test_what_is_wrong_with_another_models_table_stops_no_named_export(checkout: Path, tmp_path: Path) -> None:
    ours = of_two_models(tmp_path)
    write(ours / OTHER_TABLE, text("torn,line"))
    arguments = ("--aiter", str(checkout), "--root", str(ours))
    assert run_moeshapes("export", "tiny", *arguments, cwd=tmp_path).returncode == 0
    assert run_moeshapes("export", "other", *arguments, cwd=tmp_path).returncode == 1
    assert set(snapshot(checkout)) == {UNTUNED, TUNED}


def test_a_named_model_without_tuned_rows_gets_no_empty_table(checkout: Path, tmp_path: Path) -> None:
    ours = of_two_models(tmp_path)
    write(ours / OTHER_TABLE, text())
    run_moeshapes("export", "other", "--aiter", str(checkout), "--root", str(ours), cwd=tmp_path)
    assert [name for name in snapshot(checkout) if "untuned" not in name] == []


def test_an_unknown_model_is_named_with_the_one_that_is_meant(ours: Path, checkout: Path) -> None:
    run = run_moeshapes("export", "tinny", "--aiter", str(checkout), cwd=ours)
    assert (run.returncode, snapshot(checkout)) == (2, {})
    assert "there is no model `tinny`: did you mean `tiny`?" in run.stderr


def test_rows_of_the_portable_kernels_stay_here(checkout: Path, tmp_path: Path) -> None:
    ours = write_both_backends(tmp_path / "ours", portable_line(8), portable_line(8, gfx="gfx950", cu_num="256"))
    assert [change.name for change in exported(ours, checkout).changes] == [UNTUNED]
    assert not [name for name in snapshot(checkout) if "triton" in name]


def test_untuned_rows_are_added_and_nothing_else_moves(ours: Path, checkout: Path) -> None:
    before = untuned_text(untuned(4096), untuned(8), untuned(64)).rstrip(b"\n")
    write(checkout / UNTUNED, before)
    exported(ours, checkout)
    assert (checkout / UNTUNED).read_bytes() == before + b"\n" + untuned(1).encode() + b"\n"


def test_a_file_that_has_all_rows_is_not_touched(ours: Path, checkout: Path) -> None:
    before = untuned_text(untuned(8), untuned(1)).rstrip(b"\n")
    write(checkout / UNTUNED, before)
    assert [change.name for change in exported(ours, checkout).changes] == [TUNED]
    assert (checkout / UNTUNED).read_bytes() == before


def test_unknown_columns_and_their_order_are_kept(ours: Path, checkout: Path) -> None:
    header = ("hint", *FULL_HEADER[::-1])
    theirs = {**tuned_cells(8), "us": "99.5", "hint": "keep me"}
    other = line(header, **{**theirs, "token": "64", "hint": "x"})
    write(checkout / TUNED, text(other, line(header, **theirs), header=header))
    result = exported(ours, checkout)
    assert [(c.added, c.replaced) for c in result.changes if c.name == TUNED] == [(0, 1)]
    replaced = line(header, **{**tuned_cells(8), "hint": "keep me"})
    assert (checkout / TUNED).read_bytes() == text(other, replaced, header=header)


def test_faults_within_other_rows_are_theirs(ours: Path, checkout: Path) -> None:
    """AITER's own tables have rows with lost cells: they are carried along byte for byte."""
    short = tuned_line(64).rpartition(",")[0]
    shifted = tuned_line(128).replace("0.9%,", "")
    before = text(short, shifted)
    write(checkout / TUNED, before)
    exported(ours, checkout)
    assert (checkout / TUNED).read_bytes() == before + tuned_line(8).encode() + b"\n"


def test_an_old_header_takes_rows_that_lose_nothing(ours: Path, checkout: Path) -> None:
    old = tuple(column for column in FULL_HEADER if column not in ("gfx", "xbf16", "flat"))
    write(checkout / TUNED, text(line(old, **tuned_cells(64)), header=old))
    exported(ours, checkout)
    assert (checkout / TUNED).read_bytes() == text(
        line(old, **tuned_cells(64)), line(old, **tuned_cells(8)), header=old
    )


def test_a_value_without_a_column_is_refused(ours: Path, checkout: Path) -> None:
    (ours / TABLE).write_bytes(text(tuned_line(8, flat="2")))
    old = tuple(column for column in FULL_HEADER if column != "flat")
    write(checkout / TUNED, text(line(old, **tuned_cells(64)), header=old))
    result = planned(ours, checkout)
    assert [finding.rule.name for finding in result.findings] == ["would-be-lost"]
    assert result.changes == ()


def test_a_key_that_another_table_has_is_refused_and_nothing_planned(ours: Path, checkout: Path) -> None:
    write(checkout / "aiter/configs/tuned_fmoe.csv", text(tuned_line(64), tuned_line(8, us="1.5")))
    result = planned(ours, checkout)
    (finding,) = result.findings
    assert finding.rule.name == "would-collide"
    assert str(finding.place) == f"{TABLE}:2"
    assert "aiter/configs/tuned_fmoe.csv:3" in finding.message
    assert result.changes == ()


@pytest.mark.parametrize("damage", [b"<<<<<<< HEAD\n", b"\xff\n", b"\r\n"], ids=["conflict", "bytes", "crlf"])
@pytest.mark.parametrize("name", [UNTUNED, TUNED])
def test_a_damaged_file_is_not_written_into(ours: Path, checkout: Path, name: str, damage: bytes) -> None:
    whole = untuned_text(untuned(64)) if name == UNTUNED else text(tuned_line(64))
    write(checkout / name, whole + damage if damage != b"\r\n" else whole.replace(b"\n", b"\r\n"))
    result = planned(ours, checkout)
    assert {finding.rule.name for finding in result.findings} == {"bad-export-target"}
    assert result.changes == ()


def test_no_link_leads_out_of_the_checkout(ours: Path, checkout: Path, tmp_path: Path) -> None:
    target = write(tmp_path / "elsewhere.csv", untuned_text(untuned(64)))
    os.symlink(target, checkout / UNTUNED)
    assert [finding.rule.name for finding in planned(ours, checkout).findings] == ["bad-export-target"]
    (checkout / UNTUNED).unlink()
    shutil.rmtree(checkout / "aiter/configs/model_configs")
    os.symlink(tmp_path, checkout / "aiter/configs/model_configs")
    assert {finding.rule.name for finding in planned(ours, checkout).findings} == {"bad-export-target"}


def test_faults_of_our_own_tables_forbid_it(ours: Path, checkout: Path) -> None:
    (ours / TABLE).write_bytes(text(tuned_line(8, us="0")))
    result = planned(ours, checkout)
    assert [finding.rule.name for finding in result.findings] == ["bad-time"]
    assert result.changes == ()


def test_a_dry_run_shows_the_diff_and_writes_nothing(ours: Path, checkout: Path) -> None:
    write(checkout / UNTUNED, untuned_text(untuned(8)))
    before = snapshot(checkout)
    done = run_moeshapes("export", "--aiter", str(checkout), "--dry-run", cwd=ours)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"--- a/{UNTUNED}\n+++ b/{UNTUNED}\n" in done.stdout
    assert f"\n+{untuned(1)}\n" in done.stdout
    assert f"--- /dev/null\n+++ b/{TUNED}\n" in done.stdout
    assert "/tmp/aiter_configs" in done.stderr
    assert "AITER_CONFIG_FMOE" in done.stderr
    assert snapshot(checkout) == before


def test_the_command_writes_once_and_then_finds_nothing_to_do(ours: Path, checkout: Path) -> None:
    configs = str(checkout / "aiter" / "configs")
    done = run_moeshapes("export", "--aiter", configs, cwd=ours)
    assert done.returncode == 0
    assert done.stdout == f"wrote {UNTUNED}: 2 rows added, 0 replaced\nwrote {TUNED}: 1 row added, 0 replaced\n"
    after = snapshot(checkout)
    again = run_moeshapes("export", "--aiter", configs, "--format", "json", cwd=ours)
    assert json.loads(again.stdout) == {"changes": [], "written": True, "findings": []}
    assert snapshot(checkout) == after


def test_a_refusal_leaves_every_file_as_it_is(ours: Path, checkout: Path) -> None:
    write(checkout / "aiter/configs/tuned_fmoe.csv", text(tuned_line(8)))
    before = snapshot(checkout)
    done = run_moeshapes("export", "--aiter", str(checkout), "--format", "github", cwd=ours)
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=generated/")
    assert snapshot(checkout) == before


def test_exporting_this_repository_into_aiters_tables_only_adds(
    root: Path, tmp_path: Path, aiter_configs: Path
) -> None:
    configs = tmp_path / "aiter" / "configs"
    shutil.copytree(aiter_configs, configs)
    before = snapshot(configs)
    declarations, _ = load_declarations(root)
    result = plan_export(root, configs, declarations)
    assert result.findings == ()
    write_export(result.changes)
    after = snapshot(configs)
    for name, content in before.items():
        untouched = after[name].startswith(content.rstrip(b"\n")) or "untuned" not in name
        assert untouched, name
    assert sum(change.added for change in result.changes if "untuned" in change.name) == 55
