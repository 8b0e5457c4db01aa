"""`moeshapes verify` as people run it, in a repository small enough to take seconds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from machines import ready
from moeshapes.commands import verify as verify_command
from process import children_of, environment, is_running, run_moeshapes, wait_for
from pull_requests import make_origin
from small_repository import (
    LIMITED_MODEL,
    SHAPE,
    TABLE,
    portable_line,
    tuned_line,
    write_both_backends,
    write_small_repository,
)
from table_text import text, write

CLOSING = re.compile(
    r"(?:1 row × use|\d+ rows × uses) judged: "
    r"\d+ emulated \(\d+ from the cache\), \d+ fail, \d+ error; \d+ skipped; \d+ s"
)


def generated(root: Path) -> Path:
    assert run_moeshapes("generate", cwd=root).returncode == 0
    return root


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One tuned row, and derived files that are fresh."""
    return generated(write_small_repository(tmp_path / "repository", tuned_line(8)))


def test_a_sound_repository_is_verified_and_then_taken_from_the_cache(repository: Path, tmp_path: Path) -> None:
    done = run_moeshapes("verify", "--summary", str(tmp_path / "summary.md"), cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, last = done.stdout.splitlines()
    assert CLOSING.fullmatch(last)
    assert last.startswith("3 rows × uses judged: 3 emulated (0 from the cache), 0 fail, 0 error; 0 skipped; ")
    assert f"{TABLE}:2" in done.stdout
    assert "proven" not in done.stdout
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith(f"### moeshapes verify\n\n{last}\n")
    assert (repository / "build" / "verify.md").read_text() == summary

    again = run_moeshapes("verify", cwd=repository / "models")
    assert again.returncode == 0
    assert "3 emulated (3 from the cache)" in again.stdout
    assert any(line.startswith("verify 1/3: emulated (cached): ") for line in again.stderr.splitlines())

    fresh = run_moeshapes("verify", "--fresh", cwd=repository)
    assert "3 emulated (0 from the cache)" in fresh.stdout


def test_rows_of_both_backends_are_judged_and_one_problem_is_emulated_once(tmp_path: Path) -> None:
    root = generated(write_both_backends(tmp_path, portable_line(8)))
    done = run_moeshapes("verify", "--backend", "emulate", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 rows × uses judged: 5 emulated (0 from the cache), 0 fail, 0 error; 0 skipped" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines() if "default plan" in line]
    figures = {(cells[1], cells[5]): cells[7:] for cells in lines}
    for token in ("1", "8"):
        assert figures[token, "tiny/tp2#target"] == figures[token, "tiny/tp2-triton#target"]
    assert len(finished(root)) == 3


def test_kernels_that_ignore_the_limit_fail_by_row_and_reason(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line(1), tuned_line(8), model=LIMITED_MODEL)
    done = run_moeshapes("verify", TABLE, cwd=root)
    assert done.returncode == 1
    for line in (2, 3):
        assert re.search(rf"^fail: .*\({TABLE}:{line}\) under tiny/tp2#target$", done.stdout, re.MULTILINE)
    assert "the kernel ignores the model's swiglu_limit" in done.stdout
    assert "2 rows × uses judged: 0 emulated (0 from the cache), 2 fail, 0 error" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_good_rows_are_judged_beside_a_malformed_one(repository: Path) -> None:
    table = write(repository.parent / "mixed_tuned_fmoe.csv", text(tuned_line(8), "gfx950,256,9", tuned_line(4)))
    done = run_moeshapes("verify", str(table), cwd=repository)
    assert done.returncode == 1
    assert f"{table}:3" in done.stdout
    assert "2 rows × uses judged: 2 emulated" in done.stdout


def test_a_row_that_no_layer_has_is_skipped_with_the_reason_and_the_rest_is_judged(repository: Path) -> None:
    odd = tuned_line(4, inter_dim="240")
    table = write(repository.parent / "odd_tuned_fmoe.csv", text(tuned_line(8), odd))
    done = run_moeshapes("verify", str(table), cwd=repository)
    assert "1 row × use judged: 1 emulated (0 from the cache), 0 fail, 0 error; 1 skipped" in done.stdout
    assert "inter_dim is no multiple of a4w4's scale block, 32" in done.stdout


def test_large_buckets_are_skipped_with_the_reason(repository: Path) -> None:
    table = write(repository.parent / "large_tuned_fmoe.csv", text(tuned_line(512), tuned_line(1024)))
    done = run_moeshapes("verify", str(table), cwd=repository)
    assert f"    256/256/8/2 a4w4 token 512 ({table}:2) under undeclared#row\n" in done.stdout
    assert "skipped 2: emulated up to 256 tokens; this bucket needs a GPU" in done.stdout
    assert "0 rows × uses judged" in done.stdout


@pytest.mark.parametrize("faulty", [False, True])
def test_json_is_one_document(repository: Path, faulty: bool) -> None:
    lines = [tuned_line(8), *(["gfx950,256,9"] if faulty else [])]
    table = write(repository.parent / "some_tuned_fmoe.csv", text(*lines))
    done = run_moeshapes("verify", str(table), "--format", "json", cwd=repository)
    assert done.returncode == int(faulty)
    document = json.loads(done.stdout)
    assert set(document) == {"findings", "results"}
    assert any(finding["line"] == 3 for finding in document["findings"]) is faulty
    (only,) = document["results"]
    assert (only["status"], only["use"], only["record"]["status"]) == ("emulated", "tiny/tp2#target", "emulated")
    assert CLOSING.search(done.stderr)


def test_a_table_that_is_missing_cannot_be_verified(repository: Path) -> None:
    done = run_moeshapes("verify", "absent_tuned_fmoe.csv", cwd=repository)
    assert done.returncode == 2
    assert done.stdout == ""
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("Error: "))
    assert "absent_tuned_fmoe.csv" in error
    assert "Traceback" not in done.stderr


def test_outside_a_repository_it_cannot_run(tmp_path: Path) -> None:
    done = run_moeshapes("verify", cwd=tmp_path)
    assert done.returncode == 2
    assert "no models/ and shapes/ here or above" in done.stderr


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine has an AMD GPU")
def test_aiters_kernels_are_not_asked_for_in_vain(repository: Path) -> None:
    done = run_moeshapes("verify", "--backend", "production", cwd=repository)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: AITER's kernels cannot run here:\n  driver  no amdgpu driver is loaded\n")
    assert "`moeshapes doctor`" in done.stderr
    assert not (repository / "build").exists()


def test_gpus_are_looked_for_once(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moeshapes.doctor.machine.look", ready)
    monkeypatch.setattr(verify_command, "local_gpus", lambda: pytest.fail("looked for again"))
    table = write(repository.parent / "some_tuned_fmoe.csv", text(tuned_line(8, cu_num="304")))
    done = run_moeshapes("verify", str(table), "--backend", "production", cwd=repository)
    assert "skipped 1: no gfx950/304 GPU is here" in done.stdout, done.stderr


def test_only_rows_that_changed_since_a_branch_are_judged(repository: Path) -> None:
    for command in (["init", "-qb", "main"], ["add", "-A"], ["commit", "-qm", "base"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=repository, check=True)
    unchanged = run_moeshapes("verify", "--changed", "main", cwd=repository)
    assert unchanged.returncode == 0, unchanged.stderr
    assert "\n0 rows × uses judged" in unchanged.stdout
    table = next(repository.glob("generated/**/*_tuned_fmoe.csv"))
    kept, *_, last = table.read_text().splitlines()
    table.write_text("\n".join([kept, last.replace("gfx950,256,8", "gfx950,256,16"), ""]))
    changed = run_moeshapes("verify", "--changed", "main", cwd=repository)
    assert [line.split()[1] for line in changed.stdout.splitlines() if "emulated  " in line] == ["16"]
    assert "1 row × use without an attested record, which `gate` asks for: Run `moeshapes" in changed.stdout
    assert "attested" not in unchanged.stdout


def test_rows_rest_on_their_committed_records_unless_emulation_is_asked_for(tmp_path: Path) -> None:
    change = make_origin(tmp_path).clone().table(tuned_line(8)).prove()
    rested = run_moeshapes("verify", "--changed", "origin/main", cwd=change.root)
    assert "1 row × use judged: 1 proven (1 by committed records, 0 from the cache), " in rested.stdout, rested.stderr
    emulated = run_moeshapes("verify", "--changed", "origin/main", "--backend", "emulate", cwd=change.root)
    assert "1 row × use judged: 1 emulated " in emulated.stdout, emulated.stderr
    assert "attested" not in rested.stdout + emulated.stdout


def test_a_base_that_is_not_there_is_said_so(repository: Path) -> None:
    done = run_moeshapes("verify", "--changed", "main", cwd=repository)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_stale_derived_file_is_a_finding_and_rows_are_judged_all_the_same(repository: Path) -> None:
    (repository / "shapes" / "tiny" / "tp2.yaml").write_text(SHAPE.replace("[1, 8]", "[1, 8, 16]"))
    done = run_moeshapes("verify", cwd=repository)
    assert done.returncode == 1
    assert "tiny_untuned_fmoe.csv" in done.stdout
    assert "3 rows × uses judged: 3 emulated" in done.stdout


# --- interrupted


@pytest.fixture
def long_run(repository: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A verification of many rows, with the first records written and workers at work."""
    rows = [tuned_line(256, expert=str(expert), model_dim="1024") for expert in range(8, 208)]
    table = write(repository.parent / "many_tuned_fmoe.csv", text(tuned_line(8), *rows))
    with (repository.parent / "screen").open("wb") as screen:
        process = subprocess.Popen(
            [sys.executable, "-m", "moeshapes", "verify", str(table)],
            cwd=repository,
            env=environment(),
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
    try:
        assert wait_for(lambda: len(finished(repository)) >= 2 or process.poll() is not None, 60)
        assert process.poll() is None, "it was over before it could be interrupted"
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def finished(repository: Path) -> list[Path]:
    return sorted((repository / "build" / "records").glob("*.json"))


def test_ctrl_c_keeps_what_finished_and_leaves_no_worker(long_run: subprocess.Popen[bytes], repository: Path) -> None:
    workers = children_of(long_run.pid)
    assert workers
    # To the whole group, as a terminal does.
    os.killpg(long_run.pid, signal.SIGINT)
    assert long_run.wait(timeout=30) == 130
    shown = (repository.parent / "screen").read_text(encoding="utf-8")
    assert shown.splitlines()[-1] == "moeshapes: interrupted"
    assert "Traceback" not in shown
    assert wait_for(lambda: not any(map(is_running, workers)), 10)
    records = finished(repository)
    assert len(records) >= 2
    assert all(json.loads(path.read_text())["job"] == path.stem for path in records)
    assert not [path for path in (repository / "build" / "records").iterdir() if path.suffix != ".json"]


def test_workers_of_a_killed_parent_end_by_themselves(long_run: subprocess.Popen[bytes]) -> None:
    workers = children_of(long_run.pid)
    assert workers
    long_run.kill()
    assert wait_for(lambda: not any(map(is_running, workers)), 60)
