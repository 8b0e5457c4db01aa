"""Real faults whose right behaviour is in import, export, parity or the generated rows; named by their case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from declared import sound_document, write_repository
from moeshapes.expand import Declarations
from moeshapes.findings import Finding, has_errors
from moeshapes.hf_config import facts_of, read_config
from moeshapes.importer import ImportResult, import_file
from moeshapes.model import Block, read_model
from moeshapes.repository import load_declarations
from moeshapes.row import UNTUNED_COLUMNS
from moeshapes.yaml_text import model_text
from table_text import line, text

SHAPE = """\
model: {model}
tp: {tp}
ep: {ep}
csv: demo_untuned_fmoe.csv
gpus: [{{gfx: {gfx}, cu_num: {cu_num}}}]
recipe: {recipe}
{more}moe:
{entries}"""
ENTRY = "  - {block: target, shared_experts: separate, tokens: 1..32768}\n"
FUSED = "  - {block: target, shared_experts: fused, tokens: 1..32768}\n"


def declared(
    root: Path, tmp_path: Path, model: str, recipe: str, tp: int = 1, ep: int = 1, entries: str = ENTRY, more: str = ""
) -> tuple[Declarations, list[Finding]]:
    """One deployment of a model of this repository."""
    models = {model: (root / "models" / f"{model}.yaml").read_text()}
    return declared_of(models, tmp_path, model, recipe, tp, ep, entries, more)


def declared_of(
    models: dict[str, str],
    tmp_path: Path,
    model: str,
    recipe: str,
    tp: int = 1,
    ep: int = 1,
    entries: str = ENTRY,
    more: str = "",
) -> tuple[Declarations, list[Finding]]:
    gfx, cu_num = ("gfx950", 256)
    shape = SHAPE.format(model=model, tp=tp, ep=ep, gfx=gfx, cu_num=cu_num, recipe=recipe, more=more, entries=entries)
    return load_declarations(write_repository(tmp_path, {f"{model}/a": shape}, models))


def dims(declarations: Declarations) -> set[tuple[int, int, int, int]]:
    return {(r.row.model_dim, r.row.inter_dim, r.row.expert, r.row.topk) for r in declarations.rows}


def model_file(name: str, **facts: Any) -> str:
    return model_text(name, f"example/{name}", "cases", facts_of(facts))


def block_of(config: dict[str, Any]) -> Block:
    facts, findings = read_config(json.dumps(config).encode(), "config.json")
    assert facts, findings
    model, wrong = read_model("a", sound_document(model_text("a", "a/a", "a", facts_of(facts.block))))
    assert model, wrong
    return model.blocks["target"]


def imported(root: Path, content: bytes, name: str) -> ImportResult:
    (root / name).write_bytes(content)
    declarations, findings = load_declarations(root)
    assert not findings
    return import_file(root / name, name, "", declarations)


def test_c18_top_1_with_weights_in_stage_1(tmp_path: Path) -> None:
    facts = {"hidden_size": 5120, "moe_intermediate_size": 8192, "n_routed_experts": 128, "num_experts_per_tok": 1}
    model = model_file("llama-4", **facts, n_shared_experts=0, activation="silu")
    more = "doweight_stage1: true\n"
    found, findings = declared_of({"llama-4": model}, tmp_path, "llama-4", "fp8_token", tp=8, more=more)
    assert not findings
    assert dims(found) == {(5120, 1024, 128, 1)}
    assert {row.row.doweight_stage1 for row in found.rows} == {1}


def test_c19_a_fused_shared_expert_under_ep_is_one_more_of_both(root: Path, tmp_path: Path) -> None:
    found, findings = declared(root, tmp_path, "deepseek-v3", "a4w4", tp=8, ep=8, entries=FUSED)
    assert not findings
    assert dims(found) == {(7168, 2048, 33, 9)}


def test_c25_ep_divides_the_experts_and_not_the_width(root: Path, tmp_path: Path) -> None:
    more = "gate_mode: interleave\nenv: {AITER_BF16_FP8_MOE_BOUND: 0}\n"
    found, findings = declared(root, tmp_path, "deepseek-v4-flash", "a8w4", tp=4, ep=4, more=more)
    assert not findings
    assert dims(found) == {(4096, 2048, 64, 6)}


@pytest.mark.parametrize(("tp", "width"), [(4, 768), (8, 384)])
def test_c27_fusion_is_a_flag_and_no_note_overrides_it(root: Path, tmp_path: Path, tp: int, width: int) -> None:
    more = "gate_mode: interleave\n"
    found, _ = declared(root, tmp_path, "minimax-m3", "mxfp8", tp=tp, entries=ENTRY + FUSED, more=more)
    assert dims(found) == {(6144, width, 128, 4), (6144, width, 129, 5)}
    config = {
        "hidden_size": 6144,
        "intermediate_size": 3072,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "n_shared_experts": 1,
        "hidden_act": "swigluoai",
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        "_comment": "129 experts, top 5",
    }
    block = block_of(config)
    assert (block.n_routed_experts, block.num_experts_per_tok, block.n_shared_experts) == (128, 4, 1)


def test_c29_another_tp_adds_its_rows_alone(root: Path, tmp_path: Path) -> None:
    found, _ = declared(root, tmp_path, "qwen3.5-397b-a17b", "a4w4", tp=2, entries=ENTRY + FUSED)
    (rows,) = found.csvs.values()
    assert dims(found) == {(4096, 512, 512, 10), (4096, 512, 513, 11)}
    assert len(rows) == 32
    assert [row.token for row in rows] == [1 << n for n in range(16)] * 2


def test_c37_backups_are_passed_over_and_576_is_marked(root: Path, tmp_path: Path) -> None:
    write_repository(tmp_path, {}, {"glm-5.2": (root / "models" / "glm-5.2.yaml").read_text()})
    cells = {"q_dtype_a": "torch.float4_e2m1fn_x2"}
    table = text(line(token="512", **cells), line(token="576", **cells))
    for name in ("glm5_mxfp4_tp4_tuned_fmoe.csv.bak", "glm5_tuned_fmoe.csv.online_tune_bak", "profile_fmoe.csv"):
        passed_over = imported(tmp_path, table, name)
        assert passed_over.files == {}
        assert not has_errors(passed_over.findings)
    result = imported(tmp_path, table, "glm5_mxfp4_tp4_tuned_fmoe.csv")
    (finding,) = result.findings
    assert (finding.rule.name, finding.place.line) == ("imported-unreachable", 3)
    assert "look up 1024" in finding.message
    (shape,) = result.files.values()
    assert "unreachable: {tokens: [576]," in shape


def test_c58_a_file_for_another_activation_type_holds_other_rows(root: Path, tmp_path: Path) -> None:
    """512 padded from 384 under fp4 activations is no duplicate of the fp8 rows: parity keeps them apart by file."""
    declarations, _ = load_declarations(root)
    padded = [r for r in declarations.rows if (r.row.model_dim, r.row.inter_dim, r.row.expert) == (7168, 512, 385)]
    recipes = {
        (row.use.recipe, row.use.intermediate_pad) for row in padded if row.use.deployment.startswith("deepseek-v4")
    }
    assert recipes == {("a8w4", 128)}


def test_c60_a_renamed_column_is_named_and_the_shapes_still_come(root: Path, tmp_path: Path) -> None:
    write_repository(tmp_path, {}, {"glm-5.2": (root / "models" / "glm-5.2.yaml").read_text()})
    table = text(line(q_dtype_a="torch.float4_e2m1fn_x2")).replace(b",us,", b",total_us,", 1)
    result = imported(tmp_path, table, "glm5_tuned_fmoe.csv")
    assert any("total_us" in finding.message + finding.remedy for finding in result.findings)
    assert len(result.files) == 1


@pytest.mark.parametrize("tp", [4, 8])
def test_c92_a_width_under_a_block_is_refused_with_choices(root: Path, tmp_path: Path, tp: int) -> None:
    found, findings = declared(root, tmp_path, "minimax-m2.5", "fp8_block", tp=tp)
    if tp == 4:
        assert dims(found) == {(3072, 384, 256, 8)}
        return
    (finding,) = findings
    assert "192 % 128 = 64" in finding.message
    assert "share experts with ep" in finding.remedy
    assert "pad: {inter_dim: 128}" in finding.remedy


def test_c94_a_narrow_width_is_legal_for_bf16(root: Path, tmp_path: Path) -> None:
    found, findings = declared(root, tmp_path, "qwen3-235b-a22b", "bf16", tp=8)
    assert not findings
    assert dims(found) == {(4096, 192, 128, 8)}


def test_c96_an_mx_width_is_refused_or_padded(tmp_path: Path) -> None:
    facts = {"hidden_size": 2048, "moe_intermediate_size": 1408, "n_routed_experts": 60, "num_experts_per_tok": 4}
    models = {"qwen1.5": model_file("qwen1.5", **facts, n_shared_experts=4, activation="silu")}
    _, findings = declared_of(models, tmp_path, "qwen1.5", "a4w4", tp=2)
    (finding,) = findings
    assert "704 % 128" in finding.message
    assert "model_dim 2048" in finding.message
    found, findings = declared_of(models, tmp_path, "qwen1.5", "a4w4", tp=2, more="pad: {inter_dim: 256}\n")
    assert not findings
    assert {(row.row.inter_dim, row.use.intermediate_pad) for row in found.rows} == {(768, 64)}


def test_c97_a_width_of_384_is_legal_for_mx(root: Path, tmp_path: Path) -> None:
    found, findings = declared(root, tmp_path, "minimax-m2.5", "a4w4", tp=4)
    assert not findings
    assert dims(found) == {(3072, 384, 256, 8)}


def test_c98_facts_follow_the_key_and_not_the_prose(tmp_path: Path) -> None:
    facts = {"hidden_size": 4096, "moe_intermediate_size": 1536, "n_routed_experts": 192, "num_experts_per_tok": 8}
    write_repository(tmp_path, {}, {"hy3": model_file("hy3", **facts, n_shared_experts=0, activation="silu")})
    log = (
        "[fused_moe] using 2stage default for ('gfx950', 256, 8192, 4096, 192, 192, 8, <ActivationType.Silu: 0>, "
        "'torch.bfloat16', 'torch.float8_e4m3fn', 'torch.float8_e4m3fn', 'QuantType.per_Tensor', True, False)\n"
    )
    result = imported(tmp_path, log.encode(), "serve.log")
    assert result.findings == ()
    (path,) = result.files
    assert path == "shapes/hy3/tp8-fp8-tensor.yaml"
    assert "tokens: [8192]" in result.files[path]


def test_c100_gelu_tanh_is_not_gelu() -> None:
    config = {
        "text_config": {
            "hidden_size": 2816,
            "moe_intermediate_size": 704,
            "num_experts": 128,
            "top_k_experts": 8,
            "hidden_activation": "gelu_pytorch_tanh",
        }
    }
    facts, findings = read_config(json.dumps(config).encode(), "config.json")
    assert facts is None
    assert any("gelu_pytorch_tanh" in finding.message for finding in findings)


def test_c102_a_model_can_have_fused_and_separate_layers(root: Path, tmp_path: Path) -> None:
    found, findings = declared(root, tmp_path, "deepseek-v3", "a4w4", tp=4, entries=ENTRY + FUSED)
    assert not findings
    assert dims(found) == {(7168, 512, 256, 8), (7168, 512, 257, 9)}


def test_c104_packed_weights_keep_their_logical_width(root: Path, tmp_path: Path) -> None:
    found, _ = declared(root, tmp_path, "kimi-k2", "a16wi4", tp=4)
    assert {(row.row.inter_dim, row.row.q_dtype_w) for row in found.rows} == {(512, "torch.int4")}


def test_c105_facts_are_found_under_their_other_names_and_refused_when_they_disagree(tmp_path: Path) -> None:
    gemma = {
        "text_config": {
            "hidden_size": 2816,
            "moe_intermediate_size": 704,
            "num_experts": 128,
            "top_k_experts": 8,
            "hidden_activation": "gelu",
        }
    }
    block = block_of(gemma)
    assert (block.n_routed_experts, block.moe_intermediate_size // 2, block.num_experts_per_tok) == (128, 352, 8)
    gemma["text_config"]["num_local_experts"] = 64
    facts, findings = read_config(json.dumps(gemma).encode(), "config.json")
    assert facts is None
    assert "conflicting-facts" in {finding.rule.name for finding in findings}


def test_c106_the_routed_experts_latent_width_is_the_model_dim(root: Path, tmp_path: Path) -> None:
    block = block_of(json.loads((root / "tests/examples/configs/kimi-latent.json").read_text()))
    assert (block.hidden_size, block.expert_hidden_size) == (7168, 3584)
    found, findings = declared(root, tmp_path, "kimi-k3", "a8w4", tp=8, more="env: {AITER_SITUV2_A8W4: 1}\n")
    assert not findings
    assert dims(found) == {(3584, 384, 896, 16)}
    padded, _ = declared(
        root, tmp_path, "kimi-k3", "a8w4", tp=8, more="env: {AITER_SITUV2_A8W4: 1}\npad: {inter_dim: 256}\n"
    )
    assert dims(padded) == {(3584, 512, 896, 16)}


def test_c109_both_forms_of_log_lines_are_counted_and_mapped_to_models(root: Path, tmp_path: Path) -> None:
    models = {"glm-5": (root / "models" / "glm-5.yaml").read_text()}
    write_repository(tmp_path, {}, models)
    new = (
        "[fused_moe] using 1stage default for ('gfx950', 256, {}, 6144, 256, 257, 9, <ActivationType.Silu: 0>, "
        "'torch.bfloat16', 'torch.bfloat16', 'torch.bfloat16', 'QuantType.No', True, False)\n"
    )
    old = new.replace("'gfx950', ", "")
    log = new.format(16) + old.format(16) + old.format(64)
    result = imported(tmp_path, log.encode(), "serve.log")
    assert result.findings == ()
    assert [count.split(":")[0].split("×")[0].strip() for count in result.counts] == ["2", "1"]
    (path,) = result.files
    assert path == "shapes/glm-5/tp8-bf16.yaml"
    assert "tokens: [16, 64]" in result.files[path]


def test_c66_every_untuned_table_has_one_header(root: Path) -> None:
    configs = root / "generated" / "aiter" / "configs"
    headers = {path.read_text().partition("\n")[0] for path in configs.rglob("*untuned_fmoe*.csv")}
    assert headers == {",".join(UNTUNED_COLUMNS)}
