"""The whole gate on changes of a sample repository: evidence, declarations, text, policy, gaps, what the base lacks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from branches import git
from keys_of_ssh import make_signer, needs_ssh_keygen
from moeshapes.findings import Finding
from moeshapes.gate.run import GateResult, gate
from moeshapes.record import RECORDS
from pull_requests import NAN, Origin, PullRequest, commit, make_origin, prove
from report_samples import FASTER, SLOWER, speed
from small_repository import MODEL, SHAPE, TABLE, portable_line, tuned_line, write_small_repository
from table_text import text, write

TODAY = date(2026, 11, 30)
OTHER = "flydsl_mxmoe_g2_a4w4_32x256x256_atomic"
FORMER = TABLE.replace("tiny_", "former_")
TWO_USES = "moe:\n  - {block: target, tokens: [1, 8]}\n"


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return make_origin(tmp_path, tuned_line(8), proven=[8])


def judged(change: PullRequest, **how: Any) -> GateResult:
    return gate(change.root, "origin/main", today=TODAY, **how)


def names(findings: Sequence[Finding]) -> list[str]:
    return [finding.rule.name for finding in findings]


def found(change: PullRequest, **how: Any) -> list[str]:
    return names(judged(change, **how).findings)


def test_no_change_is_nothing_to_judge(origin: Origin) -> None:
    result = judged(origin.clone())
    assert (result.findings, result.proven, result.unproven, result.waived) == ((), 0, 0, 0)


def test_the_working_tree_counts_before_it_is_committed(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1))
    assert found(change) == ["unproven-row"]
    assert found(change.prove(1)) == []


@pytest.mark.parametrize("message", ["kept", "moved"])
def test_a_renamed_table_needs_nothing_new(origin: Origin, message: str) -> None:
    change = origin.clone()
    (change.root / TABLE).rename(change.root / FORMER)
    if message == "moved":
        (change.root / RECORDS / "tiny_tuned_fmoe").rename(change.root / RECORDS / "former_tuned_fmoe")
    result = judged(change)
    assert (names(result.findings), result.unproven) == ([], 0)


def test_rows_that_moved_and_lines_that_were_added_are_none(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(1), tuned_line(8)).prove(1)
    result = judged(change)
    assert (names(result.findings), result.proven, result.unproven) == ([], 1, 0)


def test_a_row_needs_a_record_under_each_use(origin: Origin) -> None:
    second = SHAPE.replace("moe:", "env: {AITER_X: 1}\nmoe:")
    change = origin.clone().file("shapes/tiny/tp2-other.yaml", second).table(tuned_line(8), tuned_line(1))
    (finding,) = (each for each in judged(change).findings if each.rule.name == "unproven-row")
    assert "under `tiny/tp2#target`, `tiny/tp2-other#target`" in finding.message
    change.prove(1)
    next(path for path in change.records() if "tp2-other" in path.name and '"token": 1,' in path.read_text()).unlink()
    (finding,) = (each for each in judged(change).findings if each.rule.name == "unproven-row")
    assert "under `tiny/tp2-other#target`" in finding.message
    assert judged(change).proven == 0


def test_emulation_proves_nothing(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1))
    change.prove(1, edit=lambda made: made.update(status="emulated", backend="emulate"))
    assert found(change) == ["unproven-row"]


def test_a_failed_new_row(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1)).prove(1, **NAN)
    result = judged(change)
    assert (names(result.findings), result.proven) == (["failed-row"], 0)


def test_the_first_record_of_an_old_row_may_say_that_it_fails(tmp_path: Path) -> None:
    change = make_origin(tmp_path, tuned_line(8)).clone()
    assert judged(change).unproven == 1
    change.prove(**NAN)
    assert found(change) == ["old-row-fails"]


def test_evidence_does_not_go_while_its_row_stays(tmp_path: Path) -> None:
    change = make_origin(tmp_path, tuned_line(8), proven=[8], **NAN).clone()
    assert found(change) == []
    (record,) = change.records()
    record.unlink()
    (finding,) = judged(change).findings
    assert finding.rule.name == "evidence-removed"
    assert f"its record {record.relative_to(change.root)} under `tiny/tp2#target` is gone" in finding.message
    assert finding.place.file == TABLE
    prove(change.root, edit=lambda made: made.update(status="emulated", backend="emulate"))
    assert found(change) == ["evidence-removed"]
    record.unlink()
    change.table(tuned_line(1)).prove(1)
    assert "evidence-removed" not in found(change)


def test_worse_than_the_row_that_was_there(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8, kernelName2=OTHER)).prove(over_limit=0.9, deterministic=False)
    assert found(change) == ["less-accurate", "determinism-lost"]
    change.table(tuned_line(8)).prove(over_limit=0.9, deterministic=False)
    assert found(change) == ["less-accurate", "determinism-lost"]


def test_what_was_worse_already_is_not_news(tmp_path: Path) -> None:
    change = make_origin(tmp_path, tuned_line(8), proven=[8], over_limit=0.9, deterministic=False).clone()
    change.table(tuned_line(8, kernelName2=OTHER)).prove(over_limit=0.95, deterministic=False)
    assert found(change) == []


def test_bad_records_are_found_once_and_prove_nothing(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1))
    change.prove(1, edit=lambda made: made["device"].update(cu_num=80))
    result = judged(change)
    assert (names(result.findings), result.proven) == (["bad-record"], 0)


def test_a_bad_record_that_no_row_claims_is_found_where_it_is_new(origin: Origin) -> None:
    stray = f"{RECORDS}/tiny_tuned_fmoe/{'0' * 20}-x-gfx950-256.json"
    change = origin.clone().file(stray, "{}").file(f"{RECORDS}/notes.txt", "not named as a record")
    (finding,) = judged(change).findings
    assert (finding.rule.name, finding.place.file) == ("bad-record", stray)
    commit(change.root)
    git(origin.root, "pull", "--quiet", str(change.root), "pr")
    git(change.root, "fetch", "--quiet")
    assert found(change) == []


def test_a_copied_record_is_none_of_its_new_row(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1)).prove(1)
    one, other = sorted(change.records(), key=lambda path: '"token": 1,' in path.read_text())
    shutil.copy(one, other)
    assert found(change) == ["bad-record"]


def test_a_waiver_covers_what_the_records_say_of_rows_and_no_forgery(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1))
    waiver = "waivers:\n  - {rule: RULE, file: FILE, reason: no GPU yet, until: 2026-12-31}\n"
    change.file("waivers.yaml", waiver.replace("RULE", "MOE501").replace("FILE", "tiny_tuned_fmoe.csv"))
    result = judged(change)
    assert (names(result.findings), result.waived, result.proven) == ([], 1, 0)
    change.prove(1, edit=lambda made: made["device"].update(cu_num=80))
    (path,) = (finding.place.file for finding in judged(change).findings)
    change.file("waivers.yaml", waiver.replace("RULE", "MOE508").replace("FILE", path))
    assert found(change) == ["bad-record"]


def test_lint_errors_block_where_they_are_new(tmp_path: Path) -> None:
    bad = {"err1": "46.5%"}
    origin = make_origin(tmp_path, tuned_line(8, **bad), proven=[8])
    assert found(origin.clone("old")) == []
    change = origin.clone().table(tuned_line(8, **bad), tuned_line(1, **bad)).prove(1)
    (finding,) = judged(change).findings
    assert (finding.rule.id, finding.place.line) == ("MOE163", 3)
    change.table(tuned_line(8, us="50", us1="30", us2="20", **bad))
    assert found(change) == ["err-too-high"]


def test_a_declaration_that_condemns_old_rows(origin: Origin) -> None:
    deny = "kernels:\n  deny:\n    - {match: {mode: atomic}, reason: planted}\n"
    change = origin.clone().file("shapes/tiny/tp2.yaml", SHAPE + deny)
    assert found(change) == ["denied-kernel"]
    commit(change.root)
    git(origin.root, "pull", "--quiet", str(change.root), "pr")
    later = origin.clone("later").file("shapes/tiny/tp2.yaml", f"# a comment\n{SHAPE}{deny}")
    assert found(later) == []
    both = deny + "    - {match: {stage: 1}, reason: planted}\n"
    (finding,) = judged(later.file("shapes/tiny/tp2.yaml", SHAPE + both)).findings
    assert finding.rule.name == "denied-kernel"


def test_a_row_that_changes_with_its_declaration_is_condemned_once(origin: Origin) -> None:
    """Of a waiver, too, that covers it."""
    deny = "kernels:\n  deny:\n    - {match: {mode: atomic}, reason: planted}\n"
    change = origin.clone().table(tuned_line(8, kernelName2=OTHER)).prove().file("shapes/tiny/tp2.yaml", SHAPE + deny)
    (finding,) = (each for each in judged(change).findings if each.rule.name == "denied-kernel")
    waiver = f"{{rule: {finding.rule.id}, file: tiny_tuned_fmoe.csv, reason: planted, until: 2026-12-31}}"
    result = judged(change.file("waivers.yaml", f"waivers:\n  - {waiver}\n"))
    assert ("denied-kernel" in names(result.findings), result.waived) == (False, 1)


def test_text_errors_block_where_they_are_new(tmp_path: Path) -> None:
    origin = make_origin(tmp_path, tuned_line(8), "<<<<<<< HEAD", proven=[8])
    change = origin.clone().table("<<<<<<< HEAD", tuned_line(8))
    assert found(change) == []
    (change.root / TABLE).rename(change.root / FORMER)
    assert found(change) == []
    change.table("<<<<<<< HEAD", tuned_line(8), ">>>>>>> x", "<<<<<<< HEAD", table=FORMER)
    assert [finding.place.line for finding in judged(change).findings] == [4, 5]


@pytest.mark.parametrize("header", ["us,{}", "{}\t", "{}\xff"])
def test_a_table_that_cannot_be_read_takes_no_new_row_in(tmp_path: Path, header: str) -> None:
    origin = make_origin(tmp_path, tuned_line(8), proven=[8])
    columns, _, row = text(tuned_line(16)).partition(b"\n")
    old = header.encode("latin-1").replace(b"{}", columns) + b"\n" + row
    write(origin.root / FORMER, old)
    commit(origin.root)
    change = origin.clone()
    assert found(change) == []
    (change.root / FORMER).rename(change.root / FORMER.replace("former", "later"))
    assert found(change) == []
    write(change.root / FORMER, old + row)
    (change.root / FORMER.replace("former", "later")).unlink()
    assert set(names([each for each in judged(change).findings if each.place.line == 1]))


@pytest.mark.parametrize("name", ["x_fhmoe_tuned_fmoe.csv", "grouped_fmoe_tuned_fmoe.csv"])
def test_a_table_that_aiter_merges_is_judged_whatever_its_name(origin: Origin, name: str) -> None:
    change = origin.clone().table(tuned_line(1), table=TABLE.replace("tiny_tuned_fmoe.csv", name))
    assert found(change) == ["unproven-row"]


def test_a_table_in_the_folder_of_the_other_backend_blocks_where_it_is_new(tmp_path: Path) -> None:
    origin = make_origin(tmp_path, tuned_line(8), proven=[8])
    amd = {"gfx": "gfx950", "cu_num": "256"}
    of_old, new = ("generated/triton/old_tuned_fmoe.csv", "generated/triton/new_tuned_fmoe.csv")
    write(origin.root / of_old, text(portable_line(16, **amd)))
    commit(origin.root)
    change = origin.clone()
    assert found(change) == []
    (change.root / of_old).rename(change.root / new)
    (finding,) = judged(change).findings
    assert (finding.rule.id, str(finding.place)) == ("MOE323", new)


def test_undeclared_rows_are_one_finding(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(16))
    assert found(change) == ["undeclared-row"]
    waiver = "waivers:\n  - {rule: MOE133, rows: token=16, reason: soon, until: 2026-12-31}\n"
    assert found(change.file("waivers.yaml", waiver)) == ["unproven-row"]


def test_faulty_declarations_are_said_and_do_not_stop_the_rest(origin: Origin) -> None:
    change = origin.clone().file("shapes/tiny/tp4.yaml", "model: tiny\ntp: four\n").table(tuned_line(8), tuned_line(1))
    assert {"unproven-row", "wrong-type"} <= set(found(change))


def test_a_base_that_is_not_sound(tmp_path: Path) -> None:
    origin = make_origin(tmp_path, tuned_line(8), proven=[8])
    write(origin.root / "shapes/tiny/tp4.yaml", b"model: tiny\n\ttp: [4\n")
    write(origin.root / "policy.yaml", b"slower_blocks: maybe\n")
    commit(origin.root)
    change = origin.clone().table(tuned_line(8), tuned_line(1))
    (change.root / "shapes/tiny/tp4.yaml").unlink()
    (change.root / "policy.yaml").unlink()
    findings = judged(change).findings
    assert sorted(names(findings)) == ["policy-changed", "unproven-row", "unsound-base", "unsound-base"]
    unsound = [str(finding.place) for finding in findings if finding.rule.name == "unsound-base"]
    assert unsound == ["origin/main:policy.yaml:1:16", "origin/main:shapes/tiny/tp4.yaml:2:1"]


def test_a_base_without_any_of_it(tmp_path: Path) -> None:
    root = tmp_path / "origin"
    root.mkdir()
    git(root, "init", "--quiet")
    commit(root, "empty")
    origin = Origin(root)
    change = origin.clone()
    for name, content in (("models/tiny.yaml", MODEL), ("shapes/tiny/tp2.yaml", SHAPE)):
        change.file(name, content)
    change.table(tuned_line(8))
    assert found(change) == ["unproven-row", "new-gap"]
    assert found(change.prove()) == ["new-gap"]


def test_a_change_is_judged_by_the_policy_of_its_base(tmp_path: Path) -> None:
    origin = make_origin(tmp_path, tuned_line(8), proven=[8])
    loose = "slower_blocks: false\n"
    change = origin.clone().file("policy.yaml", loose).table(tuned_line(8), tuned_line(1))
    change.prove(1, timed=speed(SLOWER))
    assert found(change) == ["slower-row", "policy-changed"]
    write(origin.root / "policy.yaml", loose.encode())
    commit(origin.root)
    later = origin.clone("later").table(tuned_line(8), tuned_line(1)).prove(1, timed=speed(SLOWER))
    assert found(later) == ["slower-row-allowed"]
    assert found(later.file("policy.yaml", "slower_block: true\n")) == [
        *("slower-row-allowed", "policy-changed", "unknown-key")
    ]


def test_a_use_that_is_declared_otherwise_loses_its_records(origin: Origin) -> None:
    change = origin.clone().file(
        "models/tiny.yaml", MODEL.replace("activation: silu", "activation: silu, swiglu_limit: 7")
    )
    findings = judged(change).findings
    assert names(findings) == ["use-changed"]
    assert str(findings[0].place) == "shapes/tiny/tp2.yaml:7:33"
    assert "1 row has a record under `tiny/tp2#target` as origin/main" in findings[0].message
    assert f"moeshapes verify {TABLE}" in findings[0].next_step
    assert judged(change).unproven == 1
    assert found(change.prove()) == []


def test_a_deployment_that_is_renamed_loses_its_records(origin: Origin) -> None:
    change = origin.clone()
    (change.root / "shapes/tiny/tp2.yaml").rename(change.root / "shapes/tiny/renamed.yaml")
    (finding,) = (each for each in judged(change).findings if each.rule.name == "use-changed")
    assert finding.message == (
        "1 row has a record under `tiny/tp2#target` as origin/main declared it, "
        "and none under `tiny/renamed#target`, as it is now"
    )
    assert "use-changed" not in found(change.prove())


@pytest.mark.parametrize("how", ["declared otherwise", "renamed"])
@pytest.mark.parametrize("kernel", [{}, {"kernelName2": OTHER}], ids=["the same row", "a changed row"])
def test_a_use_that_changes_with_its_evidence_is_compared_with_what_it_was(
    origin: Origin, how: str, kernel: dict[str, str]
) -> None:
    change = origin.clone().table(tuned_line(8, **kernel))
    if how == "renamed":
        (change.root / "shapes/tiny/tp2.yaml").rename(change.root / "shapes/tiny/renamed.yaml")
    else:
        change.file("models/tiny.yaml", MODEL.replace("activation: silu", "activation: silu, swiglu_limit: 7"))
    change.prove(over_limit=0.9, deterministic=False)
    assert {"less-accurate", "determinism-lost"} <= set(found(change))
    (finding,) = (each for each in judged(change.prove(**NAN)).findings if each.rule.name == "failed-row")
    assert finding.message.endswith("; in origin/main it was proven")


def test_evidence_is_compared_too_where_the_bases_declaration_cannot_be_read(origin: Origin) -> None:
    """The row would seem to be declared by nothing there, and its record to be of no use."""
    write(origin.root / "shapes/tiny/tp2.yaml", f"{SHAPE}unknown: 1\n".encode())
    commit(origin.root)
    change = origin.clone().file("shapes/tiny/tp2.yaml", SHAPE).prove(over_limit=0.9, deterministic=False)
    assert {"determinism-lost", "less-accurate"} <= set(found(change))
    assert "failed-row" in found(change.prove(**NAN))


@pytest.mark.parametrize("env", ["", "env: {AITER_X: 1}\n"], ids=["of the same facts", "of others"])
def test_a_second_use_is_none_that_the_base_had(origin: Origin, env: str) -> None:
    second = SHAPE.replace("moe:", f"{env}moe:")
    change = origin.clone().file("shapes/tiny/tp2-other.yaml", second).prove(**NAN, edit=_passes_under_the_first)
    assert [name for name in found(change) if name not in ("new-gap", "row-twice")] == ["old-row-fails"]


def _passes_under_the_first(made: dict[str, Any]) -> None:
    if made["use"]["id"] == "tiny/tp2#target":
        made.update(status="proven", reasons=[])
        made["numerics"]["counts"]["8"].update(bad_values=0, over_limit=0.41, block_over_limit=0.3)


def test_an_older_record_takes_no_newer_ones_place(tmp_path: Path) -> None:
    change = make_origin(tmp_path, tuned_line(8), proven=[8], **NAN).clone()
    change.prove(edit=lambda made: made.update(time="2026-11-29T23:59:59+00:00"))
    (finding,) = judged(change).findings
    assert finding.rule.name == "evidence-removed"
    assert "is of 2026-11-29T23:59:59+00:00, older than the base's of 2026-11-30T" in finding.message
    assert found(change.prove(edit=lambda made: made.update(time="2026-12-01T00:00:00+00:00"))) == []


def test_a_use_that_was_never_proven_loses_nothing(tmp_path: Path) -> None:
    change = make_origin(tmp_path, tuned_line(8)).clone()
    change.file("models/tiny.yaml", MODEL.replace("activation: silu", "activation: silu, swiglu_limit: 7"))
    assert found(change) == []


def test_new_gaps(tmp_path: Path) -> None:
    origin = make_origin(tmp_path, tuned_line(1), tuned_line(8), proven=[1, 8])
    change = origin.clone().table(tuned_line(8))
    (finding,) = judged(change).findings
    assert finding.rule.name == "new-gap"
    assert finding.message.startswith(
        "tiny/tp2#target 256/256/8/2 on gfx950/256: no row for 1 tokens, unlike in origin/main"
    )
    left_out = SHAPE.replace("tokens: [1, 8]", "tokens: [8], left_out: [{tokens: 1, reason: the default is as good}]")
    assert found(change.file("shapes/tiny/tp2.yaml", left_out)) == []


def test_portable_kernels_leave_no_gaps_of_aiters(origin: Origin) -> None:
    portable = SHAPE.replace("csv: tiny_", "csv: triton_tiny_").replace("tokens: [1, 8]", "tokens: [1, 8, 16]")
    assert "triton_tiny_" in portable
    assert found(origin.clone().file("shapes/tiny/tp2-portable.yaml", portable)) == []


def test_gaps_of_old_are_not_news(origin: Origin) -> None:
    change = origin.clone().file("shapes/tiny/tp2.yaml", f"# a comment\n{SHAPE}")
    assert found(change) == []


def test_another_branchs_own_faults_are_not_this_ones(origin: Origin) -> None:
    other = origin.clone("other").table(tuned_line(8), tuned_line(1), "broken")
    other.table(tuned_line(1), table=FORMER)
    commit(other.root)
    change = origin.clone().table(tuned_line(8), tuned_line(1)).prove(1)
    git(change.root, "fetch", "--quiet", str(other.root), "other:other")
    assert found(change, against=["other"]) == ["collision"]
    unrelated = origin.clone("unrelated")
    git(unrelated.root, "fetch", "--quiet", str(other.root), "other:other")
    assert found(unrelated, against=["other"]) == []


def test_a_row_that_the_base_changed_meanwhile(origin: Origin) -> None:
    other = origin.clone("other").table(tuned_line(8, us="50", us1="30", us2="20"))
    commit(other.root)
    change = origin.clone().table(tuned_line(8, us="40", us1="20", us2="20"))
    git(origin.root, "pull", "--quiet", str(other.root), "other")
    git(change.root, "fetch", "--quiet")
    assert found(change) == ["changed-twice"]


def test_tables_that_stand_elsewhere_block(origin: Origin) -> None:
    change = origin.clone()
    folder = (change.root / TABLE).parent
    folder.rename(change.root / "elsewhere")
    folder.symlink_to(change.root / "elsewhere")
    assert "linked-folder" in found(change)


def test_a_row_that_aiter_has_in_another_table(origin: Origin, tmp_path: Path) -> None:
    configs = tmp_path / "aiter" / "configs"
    write(configs / "model_configs" / "theirs_tuned_fmoe.csv", text(tuned_line(1)))
    change = origin.clone().table(tuned_line(8), tuned_line(1)).prove(1)
    assert found(change, configs=configs) == ["collision", "collision"]
    assert found(origin.clone("none"), configs=configs) == []


def test_removing_the_loser_of_a_collision_changes_no_row(tmp_path: Path) -> None:
    loser = tuned_line(8, kernelName2=OTHER, us="90", us1="60", us2="30")
    origin = make_origin(tmp_path, loser, tuned_line(8), proven=[8])
    result = judged(origin.clone().table(tuned_line(8)))
    assert (names(result.findings), len(result.diff.to_prove)) == ([], 0)


@needs_ssh_keygen
def test_a_change_cannot_allow_its_own_signers(origin: Origin, tmp_path: Path) -> None:
    good, evil = (make_signer(tmp_path / name, f"{name}@example.invalid") for name in ("good", "evil"))
    change = origin.clone().table(tuned_line(8), tuned_line(1)).prove(1, signer=evil)
    change.file("allowed_signers", evil.allowed)
    commit(change.root)
    signers = change.root / "allowed_signers"
    assert sorted(found(change, signers=signers)) == ["unknown-signers", "unsigned-record"]
    write(origin.root / "allowed_signers", good.allowed.encode())
    commit(origin.root)
    later = origin.clone("later").table(tuned_line(8), tuned_line(1)).prove(1, signer=evil)
    later.file("allowed_signers", good.allowed + evil.allowed)
    assert found(later, signers=later.root / "allowed_signers") == ["unsigned-record"]
    assert found(later.prove(1, signer=good), signers=later.root / "allowed_signers") == []


@needs_ssh_keygen
def test_signers_that_are_not_in_the_repository_are_taken_as_they_are(origin: Origin, tmp_path: Path) -> None:
    signer = make_signer(tmp_path / "keys", "a@example.invalid")
    change = origin.clone().table(tuned_line(8), tuned_line(1)).prove(1, signer=signer)
    commit(change.root)
    for file in (tmp_path / "allowed", change.root / "not-committed"):
        file.write_text(signer.allowed)
        assert found(change, signers=file) == []


@needs_ssh_keygen
def test_a_signature_that_is_taken_away(tmp_path: Path) -> None:
    signer = make_signer(tmp_path / "keys", "a@example.invalid")
    allowed = tmp_path / "allowed"
    allowed.write_text(signer.allowed)
    change = make_origin(tmp_path, tuned_line(8), proven=[8], signer=signer).clone()
    assert found(change, signers=allowed) == []
    (record,) = change.records()
    record.with_name(f"{record.name}.sig").unlink()
    assert found(change, signers=allowed) == ["unsigned-record"]
    assert found(change) == []


def test_records_of_before_need_no_signature(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "allowed").write_text("")
    assert found(origin.clone(), signers=tmp_path / "allowed") == []


def test_hostile_files_change_nothing_but_their_own_finding(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8), tuned_line(1))
    folder = change.root / RECORDS / "tiny_tuned_fmoe"
    (folder / f"{'1' * 20}-x-gfx950-256.json").symlink_to("/dev/zero")
    (folder / f"{'2' * 20}-\x1b[2J-gfx950-256.json").write_text("{}")
    (change.root / RECORDS / "out").symlink_to("/")
    assert found(change.prove(1)) == ["bad-record"]


def test_records_that_stand_elsewhere_block(origin: Origin) -> None:
    change = origin.clone()
    (change.root / RECORDS).rename(change.root / "elsewhere")
    (change.root / RECORDS).symlink_to("../elsewhere")
    (finding,) = judged(change).findings
    assert (finding.rule.name, finding.place.file) == ("linked-folder", RECORDS)


def test_a_faster_row_that_passes(origin: Origin) -> None:
    change = origin.clone().table(tuned_line(8, kernelName2=OTHER)).prove(timed=speed(FASTER, replaced=FASTER))
    result = judged(change)
    assert (names(result.findings), result.proven) == ([], 1)


def test_the_first_shapes_of_a_tree_of_old_rows(tmp_path: Path) -> None:
    root = tmp_path / "origin"
    for folder in ("models", "shapes"):
        write(root / folder / ".gitkeep", b"")
    write(root / TABLE, text(tuned_line(8), tuned_line(16, err1="46.5%")))
    git(root, "init", "--quiet")
    commit(root, "rows that nobody declared")
    change = Origin(root).clone().file("models/tiny.yaml", MODEL).file("shapes/tiny/tp2.yaml", SHAPE)
    result = judged(change)
    assert (names(result.findings), result.unproven) == (["new-gap"], 2)


def test_a_repository_that_is_a_folder_of_another(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path / "whole" / "shapes-of-ours", tuned_line(8))
    write(root / "policy.yaml", b"slower_blocks: false\n")
    git(root.parent, "init", "--quiet")
    prove(root)
    commit(root.parent)
    git(root.parent, "checkout", "--quiet", "-b", "pr")
    write(root / TABLE, text(tuned_line(8, kernelName2=OTHER), tuned_line(1)))
    prove(root, timed=speed(SLOWER), deterministic=False)
    result = gate(root, "main", today=TODAY)
    assert sorted(names(result.findings)) == ["determinism-lost", "slower-row-allowed", "unproven-row"]
    assert result.unproven == 0
