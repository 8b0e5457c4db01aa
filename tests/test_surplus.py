"""Surplus records: found by name, removed with their signatures, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from branches import git
from keys_of_ssh import make_signer, needs_ssh_keygen
from moeshapes.check import check_repository
from moeshapes.record import RECORDS
from moeshapes.surplus import prune, record_findings
from process import run_moeshapes
from pull_requests import prove
from small_repository import MODEL, SHAPE, TABLE, tuned_line, write_small_repository
from table_text import text, write

OTHER = "flydsl_mxmoe_g2_a4w4_32x256x256_atomic"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A proven row for 8 tokens, and the record of the one that it replaced."""
    root = write_small_repository(tmp_path, tuned_line(8, kernelName2=OTHER))
    prove(root)
    write(root / TABLE, text(tuned_line(8), tuned_line(1)))
    prove(root)
    return root


def records(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in (root / RECORDS).rglob("*") if path.is_file())


def found(root: Path) -> list[tuple[str, str]]:
    return [(finding.rule.name, finding.place.file) for finding in record_findings(root)]


def surplus(root: Path) -> str:
    """The record that no row has: the one that is older."""
    old, _ = sorted(root.rglob("generated/records/*/*.json"), key=lambda path: path.stat().st_mtime_ns)
    return old.relative_to(root).as_posix()


def test_the_record_of_a_row_that_is_gone(root: Path) -> None:
    old = surplus(root)
    assert found(root) == [("surplus-record", old)]
    assert ("surplus-record", old) in [(each.rule.name, each.place.file) for each in check_repository(root).findings]
    kept = [path for path in records(root) if path != old]
    result = prune(root, dry=True)
    assert (result.removed, result.records, result.findings) == ((old,), 2, ())
    assert old in records(root)
    assert prune(root) == result
    assert records(root) == kept
    assert prune(root).removed == ()
    assert found(root) == []


def test_a_row_that_was_only_timed_again_keeps_its_record(root: Path) -> None:
    prune(root)
    write(root / TABLE, text(tuned_line(8, us="50", us1="30", us2="20")))
    assert found(root) == []


def test_another_use_makes_a_record_surplus(root: Path) -> None:
    prune(root)
    write(root / "models/tiny.yaml", MODEL.replace("activation: silu", "activation: silu, swiglu_limit: 7").encode())
    assert [rule for rule, _ in found(root)] == ["surplus-record"]


def test_a_table_that_was_renamed_keeps_its_records(root: Path) -> None:
    prune(root)
    (root / TABLE).rename(root / TABLE.replace("tiny_", "other_"))
    assert found(root) == []


@needs_ssh_keygen
def test_a_signature_goes_with_its_record(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    signer = make_signer(tmp_path_factory.mktemp("keys"), "a@example.invalid")
    prove(root, signer=signer)
    write(root / TABLE, text(tuned_line(1)))
    prove(root, 1, signer=signer)
    assert found(root) == [("surplus-record", path) for path in records(root) if path in prune(root, dry=True).removed]
    assert len(prune(root).removed) == 2
    (record, signature) = records(root)
    assert signature == f"{record}.sig"
    (root / record).unlink()
    assert found(root) == [("stray-file", signature)]


def test_nothing_goes_where_declarations_cannot_be_read(root: Path) -> None:
    write(root / "shapes/tiny/tp2.yaml", SHAPE.replace("tp: 2", "tp: two").encode())
    before = records(root)
    result = prune(root)
    assert (result.removed, records(root)) == ((), before)
    assert [finding.rule.name for finding in result.findings] == ["wrong-type"]
    assert found(root) == []


def test_records_of_a_table_with_broken_rows_stay(root: Path) -> None:
    write(root / TABLE, text(tuned_line(8), "<<<<<<< HEAD"))
    assert (prune(root).removed, found(root)) == ((), [])


def test_files_that_are_no_records_stay(root: Path) -> None:
    old = surplus(root)
    (root / old).write_text("{}")
    for stray in ("notes.txt", "tiny_tuned_fmoe/abc.json", "a/b/c.json.sig"):
        write(root / RECORDS / stray, b"{}")
    (root / RECORDS / "tiny_tuned_fmoe" / f"{'0' * 20}-x-gfx950-256.json").symlink_to("/etc/hostname")
    before = records(root)
    result = prune(root)
    assert (result.removed, records(root)) == ((), before)
    assert {finding.rule.name for finding in result.findings} == {"bad-record"}
    rules = [rule for rule, _ in found(root)]
    assert (rules.count("stray-file"), rules.count("surplus-record")) == (4, 2)


def test_a_folder_that_is_a_link_is_not_entered(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "records"
    (root / RECORDS).rename(elsewhere)
    (root / RECORDS).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    result = prune(root)
    assert [finding.rule.name for finding in result.findings] == ["linked-folder"]
    assert sorted(elsewhere.rglob("*")) == before
    assert ("linked-folder", RECORDS) in found(root)


def test_a_repository_without_records(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line(8))
    assert (record_findings(root), prune(root).records) == ([], 0)


def test_the_command_says_which_and_how_many(root: Path) -> None:
    old = surplus(root)
    done = run_moeshapes("records", "prune", "--dry-run", cwd=root)
    assert (done.returncode, done.stdout) == (0, f"would remove {old}\n")
    done = run_moeshapes("records", "prune", cwd=root)
    assert (done.returncode, done.stdout) == (0, f"removed {old}\n")
    assert done.stderr == "moeshapes prune: no findings, 1 of 2 records surplus\n"
    done = run_moeshapes("records", "prune", "--format", "json", cwd=root)
    assert (done.stdout, done.stderr) == ("[]\n", "moeshapes prune: no findings, 0 of 1 record surplus\n")


def test_records_of_two_branches_merge_whichever_comes_first(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line(8), tuned_line(1))
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "rows without records")
    for branch, token in (("one", 1), ("eight", 8)):
        git(root, "checkout", "--quiet", "-b", branch, "main")
        prove(root, token)
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", branch)
    trees = []
    for first, second in (("one", "eight"), ("eight", "one")):
        git(root, "checkout", "--quiet", "-b", f"{first}-first", "main")
        for branch in (first, second):
            git(root, "merge", "--quiet", "--no-ff", "--no-edit", branch)
        trees.append(git(root, "rev-parse", "HEAD^{tree}"))
        done = run_moeshapes("gate", "--base", "main", cwd=root)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.endswith("no row new or changed; 0 rows unproven that were there before\n")
    assert trees[0] == trees[1]
    assert len(records(root)) == 2
