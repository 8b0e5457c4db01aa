"""Published faults of keys: each as it happened, with what is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from branches import A, B, git, repository
from moeshapes.collision import COLLISION, TAG_IGNORED
from moeshapes.findings import Finding
from moeshapes.keys import check_keys
from moeshapes.mend import remove_losers
from moeshapes.overlay import REPLACED
from table_text import line, text, write

GENERAL = "generated/aiter/configs/tuned_fmoe.csv"
LEGACY = tuple(column for column in text().decode().strip().split(",") if column != "gfx")
MXMOE = {
    "kernelName1": "flydsl_mxmoe_g1_a4w4_32x256x256",
    "kernelName2": "flydsl_mxmoe_g2_a4w4_32x256x256_atomic",
    "us2": "0",
}
LAYOUT = {
    "kernelName1": "flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2_fp4",
    "kernelName2": "flydsl_moe2_layout_afp4_wfp4_bf16_t32x128x256_atomic",
}
FP4 = {"q_dtype_a": "torch.float4_e2m1fn_x2"}


def findings(root: Path, tables: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    for name, lines in tables.items():
        write(root / name, text(*lines))
    return check_keys(root).findings


def test_c38_equal_cu_counts_of_two_architectures_do_not_collide_and_a_legacy_row_does(tmp_path: Path) -> None:
    rows = [line(gfx=gfx, token="1", model_dim="7168", inter_dim="256") for gfx in ("gfx950", "gfx1250")]
    assert findings(tmp_path, {A: rows[:1], B: rows[1:]}) == ()
    write(tmp_path / GENERAL, text(line(LEGACY, token="1", model_dim="7168", inter_dim="256"), header=LEGACY))
    found = check_keys(tmp_path).findings
    assert [(finding.rule, finding.place.file) for finding in found] == [(COLLISION, GENERAL), (COLLISION, A)]


def test_c51_both_rows_are_named_with_time_kernels_and_the_one_that_aiter_keeps(tmp_path: Path) -> None:
    slow, fast = line(us="100"), line(us="90", kernelName1=LAYOUT["kernelName1"])
    found = findings(tmp_path, {GENERAL: [slow], B: [fast]})
    assert [str(finding.place) for finding in found] == [f"{GENERAL}:2", f"{B}:2"]
    assert f"the same key has {B}:2 (90 µs, {LAYOUT['kernelName1']} + " in found[0].message
    assert f"AITER would keep the row at {B}:2" in found[0].message
    assert "AITER would keep this row" in found[1].message
    assert (tmp_path / GENERAL).read_bytes() == text(slow)
    assert remove_losers(tmp_path) == []
    assert [f.rule for f in findings(tmp_path, {GENERAL: [line(_tag="a")], B: [fast]})] == [TAG_IGNORED]


def test_c53_two_files_that_are_green_alone_collide_when_both_are_merged(tmp_path: Path) -> None:
    tokens = ["64", "256", "512"]
    one, two = ([line(token=token, us=us) for token in tokens] for us in ("100", "90"))
    root = repository(tmp_path, {GENERAL: []}, one={GENERAL: [], A: one}, two={GENERAL: [], B: two})
    for branch in ("one", "two"):
        git(root, "checkout", "--quiet", branch)
        assert check_keys(root).findings == ()
    found = check_keys(root, against=["one"]).findings
    assert found == check_keys(root, against=["one"]).findings
    assert {str(finding.place) for finding in found} == {f"{B}:{n}" for n in (2, 3, 4)} | {
        f"one:{A}:{n}" for n in (2, 3, 4)
    }


def test_c55_a_sweep_that_replaces_another_tuners_rows_is_shown_row_by_row(tmp_path: Path) -> None:
    old = {"16": "90.96", "32": "138.56", "64": "188.04", "128": "206.49", "8192": "876.67"}
    new = {"16": "120.5718", "32": "205.8903", "64": "207.541", "128": "211.9203", "8192": "935.6602"}
    configs, root = tmp_path / "aiter" / "configs", tmp_path / "ours"
    write(
        configs / "model_configs" / "a_tuned_fmoe.csv",
        text(*(line(token=t, us=us, **FP4, **MXMOE) for t, us in old.items())),
    )
    write(root / A, text(*(line(token=t, us=us, **FP4, **LAYOUT) for t, us in new.items())))
    replaced = [f for f in check_keys(root, configs).findings if f.rule is REPLACED]
    changes = ["+32.6 %", "+48.6 %", "+10.4 %", "+2.6 %", "+6.7 %"]
    assert len(replaced) == len(changes)
    for finding, change in zip(replaced, changes, strict=True):
        assert change in finding.message
        assert "one was timed as a whole, the other stage by stage" in finding.message


def test_c55_two_tuners_that_write_one_key_are_never_decided_by_their_times(tmp_path: Path) -> None:
    rows = [line(us="90.96", **FP4, **MXMOE), line(us="120.5718", **FP4, **LAYOUT)]
    for finding in findings(tmp_path, {A: rows}):
        assert "one was timed as a whole, the other stage by stage" in finding.next_step
    assert remove_losers(tmp_path) == []


def test_c56_rows_with_a_fallback_tag_are_no_duplicates_and_are_never_removed(tmp_path: Path) -> None:
    shape = {"expert": "385", "topk": "9"}
    rows = [line(us="70", **shape), line(us="90", _tag="flydsl_fallback", **shape)]
    assert findings(tmp_path, {A: rows}) == ()
    assert remove_losers(tmp_path) == []
    assert (tmp_path / A).read_bytes() == text(*rows)


def test_c58_the_same_width_with_other_activations_is_no_duplicate(tmp_path: Path) -> None:
    shape = {"model_dim": "7168", "inter_dim": "512", "expert": "384", "topk": "6"}
    rows = [line(token=token, **shape) for token in ("1", "2048")]
    padded = [line(token=token, **FP4, **shape) for token in ("1", "2048")]
    assert findings(tmp_path, {A: rows, B: padded}) == ()


def test_c59_old_rows_collide_with_new_ones_until_they_are_removed(tmp_path: Path) -> None:
    shape = {"gfx": "gfx942", "cu_num": "304", "model_dim": "7168", "inter_dim": "2048", "expert": "33", "topk": "9"}
    shape |= dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fnuz") | {"q_type": "QuantType.per_1x128"}
    old = [line(token=token, us="100", **shape) for token in ("1", "32")]
    new = [line(token=token, us="80", **shape) for token in ("1", "2", "4", "8", "16", "32", "64")]
    found = findings(tmp_path, {GENERAL: old, B: new})
    assert [finding.place.line for finding in found if finding.place.file == GENERAL] == [2, 3]
    assert [finding.place.line for finding in found if finding.place.file == B] == [2, 7]
    assert findings(tmp_path, {GENERAL: [], B: new}) == ()
