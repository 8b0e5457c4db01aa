from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from declared import MODEL, SHAPE, declared, sound_document, write_repository
from moeshapes.dispatch import BUCKETS
from moeshapes.expand import expand, row_order
from moeshapes.findings import Finding
from moeshapes.model import read_model
from moeshapes.repository import load_declarations
from moeshapes.row import Key, UntunedRow
from moeshapes.shape import read_shape

DENY = "kernels: {deny: [{match: {stage: 1}, reason: NaN}]}\n"
ZEROS = SHAPE.replace("tp: 4", "tp: 4\npad: {inter_dim: 128}")
ARGUMENTS = ZEROS + "pads: arguments\n"


def seen(findings: list[Finding]) -> list[tuple[str, str]]:
    return sorted((finding.rule.name, str(finding.place)) for finding in findings)


def test_a_row_is_spelled_as_aiter_spells_it(tmp_path: Path) -> None:
    declarations, findings = declared(tmp_path, tp4=SHAPE)
    assert not findings
    assert ",".join(declarations.csvs["demo_untuned_fmoe.csv"][0].cells()) == (
        "1,5120,576,384,6,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,torch.float8_e4m3fn,"
        "QuantType.per_Token,1,0"
    )


def test_a_use_says_what_the_row_does_not(tmp_path: Path) -> None:
    text = ARGUMENTS.replace("shared_experts: separate", "shared_experts: fused") + "env: {A: 0}\n" + DENY
    declarations, findings = declared(tmp_path, tp4=text)
    assert not findings
    use = declarations.rows[0].use
    assert use.id == "demo/tp4#target+arguments"
    assert (use.deployment, use.block, use.recipe, use.activation) == ("demo/tp4", "target", "fp8_token", "silu")
    assert (use.intermediate_pad, use.hidden_pad, use.pads, use.shared_experts) == (64, 0, "arguments", 1)
    assert (use.swiglu_limit, use.env, use.gate_mode, use.bias) == (10.0, {"A": "0"}, "separated", False)
    assert [str(deny.place) for deny in declarations.rows[0].deny] == ["shapes/demo/tp4.yaml:11:18"]
    assert str(declarations.rows[1].place) == "shapes/demo/tp4.yaml:8:33"


def test_fp8_is_spelled_for_each_architecture(tmp_path: Path) -> None:
    gpus = "[{gfx: gfx950, cu_num: 256}, {gfx: gfx942, cu_num: 304}, {gfx: gfx942, cu_num: 80}]"
    declarations, findings = declared(tmp_path, tp4=SHAPE.replace("[{gfx: gfx950, cu_num: 256}]", gpus))
    assert not findings
    assert {(d.row.q_dtype_a, tuple((g.gfx, g.cu_num) for g in d.gpus)) for d in declarations.rows} == {
        ("torch.float8_e4m3fn", (("gfx950", 256),)),
        ("torch.float8_e4m3fnuz", (("gfx942", 80), ("gfx942", 304))),
    }


def test_one_row_may_have_several_uses(tmp_path: Path) -> None:
    declarations, findings = declared(tmp_path, a=ZEROS, b=ARGUMENTS)
    assert not findings
    (one, _) = declarations.csvs["demo_untuned_fmoe.csv"]
    key = Key("gfx950", 256, one)
    assert [declared.use.id for declared in declarations.of(key)] == ["demo/a#target+zeros", "demo/b#target+arguments"]
    assert declarations.of(Key("gfx942", 304, one)) == declarations.of(key, portable=True) == ()


def test_pads_make_no_second_use_where_nothing_is_padded(tmp_path: Path) -> None:
    declarations, _ = declared(tmp_path, tp4=SHAPE + "pads: [zeros, arguments]\n")
    assert [d.use.id for d in declarations.rows] == ["demo/tp4#target"] * 2


def test_the_same_use_twice_is_found_at_both_places(tmp_path: Path) -> None:
    _, findings = declared(tmp_path, a=SHAPE, b=SHAPE.replace("[1, 32]", "[32, 64]"))
    assert seen(findings) == [("row-twice", "shapes/demo/a.yaml:7:33"), ("row-twice", "shapes/demo/b.yaml:7:30")]


def test_the_same_use_twice_in_one_file_is_found_at_both_places(tmp_path: Path) -> None:
    _, findings = declared(tmp_path, a=SHAPE + "  - {block: target, tokens: [1, 2, 32]}\n")
    assert seen(findings) == [("row-twice", "shapes/demo/a.yaml:7:30"), ("row-twice", "shapes/demo/a.yaml:8:30")]
    assert all("tokens 1, 32 " in finding.message for finding in findings)


def test_checkpoints_of_one_architecture_are_one_model(tmp_path: Path) -> None:
    root = write_repository(
        tmp_path,
        {"demo/tp4": SHAPE, "twin/tp4": SHAPE.replace("model: demo", "model: twin")},
        {"demo": MODEL, "twin": MODEL},
    )
    _, findings = load_declarations(root)
    assert {finding.rule.name for finding in findings} == {"row-twice"}
    assert "`checkpoint`" in findings[0].next_step


def test_a_row_stands_in_one_file_unless_for_other_gpus(tmp_path: Path) -> None:
    other = ARGUMENTS.replace("demo_untuned", "other_untuned")
    _, findings = declared(tmp_path / "same", a=ZEROS, b=other)
    assert {finding.rule.name for finding in findings} == {"row-in-two-files"}
    assert len(findings) == 2
    _, findings = declared(tmp_path / "others", a=ZEROS, b=other.replace("cu_num: 256", "cu_num: 128"))
    assert not findings


def test_a_key_may_have_a_row_of_aiters_and_one_of_the_portable_kernels(tmp_path: Path) -> None:
    portable = ZEROS.replace("demo_untuned", "triton_demo_untuned")
    declarations, findings = declared(tmp_path, a=ZEROS + DENY, b=portable)
    assert not findings
    key = Key("gfx950", 256, declarations.rows[0].row)
    assert [declared.use.id for declared in declarations.of(key)] == ["demo/a#target+zeros"]
    assert [declared.use.id for declared in declarations.of(key, portable=True)] == ["demo/b#target+zeros"]
    assert [bool(declarations.of(key, portable)[0].deny) for portable in (False, True)] == [True, False]


def test_the_portable_kernels_stand_in_one_table_too(tmp_path: Path) -> None:
    one, other = (ARGUMENTS.replace("demo_untuned", name) for name in ("triton_a_untuned", "triton_b_untuned"))
    _, findings = declared(tmp_path, a=one, b=other.replace("arguments", "zeros"))
    assert {finding.rule.name for finding in findings} == {"row-in-two-files"}


def test_policies_of_one_key_agree(tmp_path: Path) -> None:
    _, findings = declared(tmp_path / "one", a=ZEROS + DENY, b=ARGUMENTS)
    assert seen(findings) == [("policy-conflict", f"shapes/demo/{name}.yaml:8:30") for name in "ab"]
    declarations, findings = declared(tmp_path / "both", a=ZEROS + DENY, b=ARGUMENTS + DENY.replace("NaN", "same"))
    assert not findings
    key = Key("gfx950", 256, declarations.rows[0].row)
    assert [[deny.match for deny in declared.deny] for declared in declarations.of(key)] == [[{"stage": 1}]] * 2


def test_unknown_models_and_blocks_are_named(tmp_path: Path) -> None:
    _, findings = declared(
        tmp_path, a=SHAPE.replace("model: demo", "model: dem"), b=SHAPE.replace("block: target", "block: targets")
    )
    assert seen(findings) == [("unknown-model", "shapes/demo/a.yaml:1:8"), ("unknown-model", "shapes/demo/b.yaml:7:13")]
    assert all("did you mean" in finding.message for finding in findings)


def test_a_faulty_model_is_not_also_an_unknown_one(tmp_path: Path) -> None:
    root = write_repository(tmp_path, {"demo/tp4": SHAPE}, {"demo": MODEL.replace("silu", "slu")})
    _, findings = load_declarations(root)
    assert seen(findings) == [("wrong-value", "models/demo.yaml:5:45")]


def test_a_fault_elsewhere_in_the_file_does_not_hide_a_clash(tmp_path: Path) -> None:
    faulty = SHAPE.replace("tokens: [1, 32]", "tokens: [1, 32, 40]")
    _, findings = declared(tmp_path, a=faulty, b=SHAPE)
    assert {finding.rule.name for finding in findings} == {"unreachable-bucket", "row-twice"}


buckets = st.sets(st.sampled_from(BUCKETS), min_size=1)


@given(tokens=buckets, fused=st.booleans(), tp=st.sampled_from([1, 2, 4, 6, 12]), weighted=st.booleans())
@settings(max_examples=50)
def test_what_any_expansion_keeps(tokens: set[int], fused: bool, tp: int, weighted: bool) -> None:
    model, _ = read_model("demo", sound_document(MODEL))
    text = SHAPE.replace("[1, 32]", str(list(tokens))).replace("tp: 4", f"tp: {tp}")
    text = text.replace("experts: separate", f"experts: {'fused' if fused else 'separate'}")
    shape, _ = read_shape("demo/tp", sound_document(text + f"doweight_stage1: {str(weighted).lower()}\n"))
    declarations, findings = expand({"demo": model}, [shape])
    assert not findings
    rows = [declared.row for declared in declarations.rows]
    assert {row.token for row in rows} == tokens
    assert len(rows) == len(tokens)
    assert rows == sorted(rows, key=row_order)
    assert {(row.expert, row.topk, row.inter_dim * tp) for row in rows} == {(384 + fused, 6 + fused, 2304)}
    assert {row.doweight_stage1 for row in rows} == {int(weighted)}


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_files_does_not_matter(order: list[str]) -> None:
    model, _ = read_model("demo", sound_document(MODEL))
    texts = {"a": SHAPE, "b": SHAPE.replace("tp: 4", "tp: 2"), "c": ARGUMENTS}
    shapes = [read_shape(f"demo/{name}", sound_document(texts[name]))[0] for name in order]
    declarations, _ = expand({"demo": model}, shapes)
    expected, _ = expand({"demo": model}, sorted(shapes, key=lambda shape: shape.deployment))
    assert declarations.rows == expected.rows


def test_rows_of_one_shape_stand_together() -> None:
    def row(token: int, expert: int, act: str = "a") -> UntunedRow:
        return UntunedRow(token, 1, 1, expert, 1, act, "", "", "", "", 1, 0)

    rows = [row(1, 10), row(2, 2, "b"), row(1, 2, "b"), row(8, 2), row(1, 2)]
    assert sorted(rows, key=row_order) == [row(1, 2), row(8, 2), row(1, 2, "b"), row(2, 2, "b"), row(1, 10)]
