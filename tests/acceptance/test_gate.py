"""`moeshapes gate` on pull requests: each in a clone of its own, with what it must say and its exit status."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from branches import git
from jobs import MXMOE
from keys_of_ssh import make_signer, needs_ssh_keygen
from process import run_moeshapes, run_python
from pull_requests import NAN, Origin, make_origin
from report_samples import FASTER, SLOWER, speed
from small_repository import TABLE, tuned_line
from table_text import write

OTHER = "flydsl_mxmoe_g2_a4w4_32x256x256_atomic"
NEIGHBOUR = TABLE.replace("tiny_", "other_")
PADDED = """\
model: tiny
tp: 2
csv: padded_untuned_fmoe.csv
gpus: [{gfx: gfx950, cu_num: 256}]
recipe: a4w4
pad: {inter_dim: 512}
moe:
  - {block: target, tokens: [8]}
kernels:
  deny:
    - {match: {stage: 2, mode: atomic}, reason: padded columns are not written}
"""
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    """Main has a proven row for 8 tokens."""
    return make_origin(tmp_path, tuned_line(8), proven=[8], timed=speed(FASTER))


def rules(done: Done) -> list[str]:
    return re.findall(r": (?:error|warning|info) (MOE\d+) ", done.stdout)


def test_a_clean_new_row_with_records(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1)).prove(1)
    done = change.gate()
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(
        r"moeshapes gate: no findings, since origin/main \([0-9a-f]{9}\) 1 new; 1 of 1 proven; "
        r"0 rows unproven that were there before\n",
        done.stderr,
    )


def test_a_new_row_without_a_record(origin: Origin) -> None:
    done = origin.clone().table(tuned_line(8), tuned_line(1)).gate()
    assert done.returncode == 1
    assert rules(done) == ["MOE501"]
    assert f"{TABLE}:3: error MOE501 gfx950/256 token 1 256/256/8/2" in done.stdout
    assert "is new since origin/main" in done.stdout
    assert "no record of a gfx950/256 GPU proves it under `tiny/tp2#target`" in done.stdout
    remedy = "on a gfx950/256 GPU (or label the pull request `verify-gpu`), and commit what it"
    assert f"fix: Run `moeshapes verify --changed origin/main` {remedy}" in done.stdout
    assert "1 new; 0 of 1 proven" in done.stderr


def test_a_colliding_key(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8, us="50", us1="30", us2="20"), table=NEIGHBOUR).prove(table=NEIGHBOUR)
    done = change.gate()
    assert done.returncode == 1
    assert set(rules(done)) == {"MOE201"}
    assert f"{NEIGHBOUR}:2: error MOE201" in done.stdout
    assert f"the same key has {TABLE}:2" in done.stdout


def test_two_branches_that_are_clean_alone_and_collide_together(origin: Origin) -> None:
    one = origin.clone("one").table(tuned_line(8), tuned_line(1)).prove(1)
    two = origin.clone("two").table(tuned_line(1), table=NEIGHBOUR).prove(1, table=NEIGHBOUR)
    assert (one.gate().returncode, two.gate().returncode) == (0, 0)
    git(one.root, "fetch", "--quiet", str(two.root), "two:two")
    done = one.gate("--against", "two")
    assert done.returncode == 1
    assert rules(done) == ["MOE201"]
    assert f"{TABLE}:3: error MOE201 with `two` merged, " in done.stdout
    assert f"the same key has two:{NEIGHBOUR}:2" in done.stdout


def test_a_branch_that_was_merged_first(origin: Origin) -> None:
    one = origin.clone("one").table(tuned_line(8), tuned_line(1)).prove(1)
    two = origin.clone("two").table(tuned_line(1), table=NEIGHBOUR).prove(1, table=NEIGHBOUR)
    two.gate()
    git(origin.root, "pull", "--quiet", str(two.root), "two")
    assert one.gate().returncode == 0
    git(one.root, "fetch", "--quiet")
    done = one.gate()
    assert (done.returncode, rules(done)) == (1, ["MOE201"])
    assert "with `origin/main` merged" in done.stdout


def test_a_kernel_that_was_edited_after_it_was_verified(origin: Origin) -> None:
    done = origin.clone().table(tuned_line(8, kernelName2=OTHER)).gate()
    assert done.returncode == 1
    assert rules(done) == ["MOE501"]
    assert f"is changed, kernelName2 {MXMOE[1]} → {OTHER}, since origin/main" in done.stdout


def test_a_row_of_which_only_the_time_changed_is_still_proven(origin: Origin) -> None:
    done = origin.clone().table(tuned_line(8, us="50", us1="30", us2="20")).gate()
    assert (done.returncode, done.stdout) == (0, "")
    assert "1 measured again; 0 rows unproven" in done.stderr


def test_nan_appeared(origin: Origin) -> None:
    done = origin.clone().prove(**NAN).gate()
    assert done.returncode == 1
    assert rules(done) == ["MOE502"]
    assert (
        f"{TABLE}:2: error MOE502 under `tiny/tp2#target`: failed on MI355X: 3 NaN or Inf at 8 tokens; "
        "NaN in 3 of 10 runs at 8 tokens; in origin/main"
    ) in done.stdout
    assert "it was proven" in done.stdout


def test_determinism_lost(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8, kernelName2=OTHER)).prove(deterministic=False)
    done = change.gate()
    assert done.returncode == 1
    assert rules(done) == ["MOE505"]
    assert "not deterministic at 8 tokens, in origin/main" in done.stdout


def test_slower_than_the_row_that_it_replaces(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8, kernelName2=OTHER, us="50", us1="30", us2="20"))
    done = change.prove(timed=speed(FASTER, replaced=SLOWER)).gate()
    assert done.returncode == 1
    assert rules(done) == ["MOE506"]
    assert "7.1 % (6.8 to 7.3 %) slower than the row that it replaces" in done.stdout


def test_a_denied_kernel_on_a_padded_shape(origin: Origin) -> None:
    table = TABLE.replace("tiny_", "padded_")
    change = origin.clone().file("shapes/tiny/tp2-padded.yaml", PADDED)
    done = change.table(tuned_line(8, inter_dim="512"), table=table).prove(table=table).gate()
    assert done.returncode == 1
    assert "MOE307" in rules(done)
    assert f"{table}:2: error MOE307 kernelName2 `{MXMOE[1]}` is denied by" in done.stdout
    assert "padded columns are not written" in done.stdout
    assert "MOE501" not in rules(done)


def test_an_expired_waiver(origin: Origin) -> None:
    waiver = "waivers:\n  - {rule: MOE163, file: a_tuned_fmoe.csv, reason: known, until: 2020-02-29}\n"
    done = origin.clone().file("waivers.yaml", waiver).gate()
    assert done.returncode == 1
    assert rules(done) == ["MOE140"]
    assert "waivers.yaml:2:66: error MOE140 the waiver of MOE163 ended on 2020-02-29: known" in done.stdout


@needs_ssh_keygen
def test_a_forged_record(origin: Origin, tmp_path: Path) -> None:
    signer = make_signer(tmp_path / "keys", "runner@example.invalid")
    allowed = tmp_path / "keys" / "allowed_signers"
    allowed.write_text(signer.allowed)
    change = origin.clone().table(tuned_line(8), tuned_line(1)).prove(1, signer=signer)
    arguments = ("--require-signature", str(allowed))
    assert change.gate(*arguments).returncode == 0
    (record,) = (path for path in change.records() if '"token": 1,' in path.read_text())
    record.write_text(record.read_text().replace('"over_limit": 0.41', '"over_limit": 0.1'))
    assert change.gate().returncode == 0
    done = change.gate(*arguments)
    assert done.returncode == 1
    assert rules(done) == ["MOE509"]
    assert f"{record.relative_to(change.root)}: error MOE509 not a good signature of this content" in done.stdout
    assert "verify --fresh --sign KEY" in done.stdout
    assert "0 of 1 proven" in done.stderr


def test_formats_for_machines(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1))
    (found,) = json.loads(change.gate("--format", "json").stdout)
    assert (found["rule"], found["file"], found["line"]) == ("MOE501", TABLE, 3)
    done = change.gate("--format", "github")
    assert done.stdout.startswith(f"::error file={TABLE},line=3,title=MOE501::")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base", "absent"], "has no branch or commit 'absent'"),
        (["--base", "--all"], "is no name of a branch or commit"),
        (["--base", "main", "--against", "absent"], "has no branch or commit 'absent'"),
        ([], "Missing option '--base'"),
        (["--base", "main", "--require-signature", "absent"], "does not exist"),
    ],
)
def test_what_cannot_be_judged(origin: Origin, arguments: list[str], said: str) -> None:
    done = run_moeshapes("gate", *arguments, cwd=origin.root)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_tree_of_old_rows_adopts_the_gate_at_once(tmp_path: Path, aiter_configs: Path) -> None:
    origin = make_origin(tmp_path)
    configs = origin.root / "generated" / "aiter" / "configs"
    for path in [aiter_configs / "tuned_fmoe.csv", *aiter_configs.glob("model_configs/*_tuned_fmoe*.csv")]:
        write(configs / path.relative_to(aiter_configs), path.read_bytes())
    git(origin.root, "add", "--all")
    git(origin.root, "commit", "--quiet", "--message", "AITER's tables")
    change = origin.clone().file("README.md", "no row changes")
    done = change.gate()
    assert (done.returncode, done.stdout) == (0, "")
    counts = re.search(
        r"no row new or changed; (\d+) rows unproven that were there before; (\d+) lines of tables cannot be read\n$",
        done.stderr,
    )
    assert counts
    assert int(counts[1]) + int(counts[2]) == 2402
    assert 0 < int(counts[2]) < 50


def test_nothing_heavy_is_imported(root: Path) -> None:
    code = "import moeshapes.commands.gate, sys; print(*{'torch', 'pandas', 'numpy', 'jinja2'} & set(sys.modules))"
    assert run_python("-c", code, cwd=root).stdout == "\n"
