"""`explain` and `coverage` as people run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from process import run_moeshapes, run_python

KEY = "gfx950,256,8,6144,512,257,9,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0"


def test_explain_names_the_row_and_the_kernels(root: Path) -> None:
    done = run_moeshapes("explain", "GLM-5.2", "--tp", "4", "--tokens", "7", cwd=root)
    assert done.returncode == 0, done.stderr
    for words in (
        "7 → 8",
        "glm5_fp4_tuned_fmoe.csv:2",
        "68.581 µs",
        "flydsl_mxmoe_g2_a4w4_16x256x256_atomic",
        "as the row",
    ):
        assert words in done.stdout


def test_explain_as_json(root: Path) -> None:
    done = run_moeshapes("explain", KEY, "--tokens", "7", "--format", "json", cwd=root)
    (answer,) = json.loads(done.stdout)
    assert (answer["tokens"], answer["bucket"], answer["row"]["line"], answer["runs"]["step"]) == (7, 8, 2, 1)


def test_a_crash_to_be_expected_is_exit_status_1(root: Path) -> None:
    done = run_moeshapes("explain", KEY, "--ep", cwd=root)
    assert done.returncode == 1
    assert "error: a crash is expected: mxmoe kernels take no expert mask" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("GLM-5.2",), "say how many tokens"),
        (("GLM-5,2",), "2 fields"),
        (("GLM-52", "--tokens", "1"), "there is no model"),
        (("glm-5.2", "--tokens", "x"), "not a valid integer"),
        ((KEY, "--env", "AITER_KSPLT=1"), "did you mean `AITER_KSPLIT`?"),
        ((KEY, "--env", "HOME=1"), "explain knows no effect of `HOME`"),
        ((KEY, "--env", "AITER_KSPLIT"), "is not VARIABLE=VALUE"),
        ((KEY, "--env", "AITER_KSPLIT=two"), "as a whole number, not `two`"),
        ((KEY, "--env", f"AITER_KSPLIT={'9' * 5000}"), "as a whole number, not `999"),
        ((KEY, "--tuned", "tests"), "no tuned tables (tests has none)"),
        ((KEY, "--aiter-of", "yesterday"), "is no day: write it as YYYY-MM-DD"),
    ],
)
def test_what_cannot_be_asked_is_exit_status_2(root: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run_moeshapes("explain", *arguments, cwd=root)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_outside_a_repository_a_key_needs_tables_and_a_model_declarations(root: Path, tmp_path: Path) -> None:
    assert run_moeshapes("explain", KEY, cwd=tmp_path).returncode == 2
    tables = root / "generated" / "aiter" / "configs"
    assert run_moeshapes("explain", KEY, "--tuned", str(tables), cwd=tmp_path).returncode == 0
    done = run_moeshapes("explain", "glm-5.2", "--tokens", "1", "--tuned", str(tables), cwd=tmp_path)
    assert done.returncode == 2
    assert "no models/ and shapes/" in done.stderr


@pytest.mark.parametrize(
    ("tokens", "path", "said"),
    [
        (16, "2stage default", ""),
        (16, "1stage default", "the log line says 1stage, these rules give 2stage: "),
        (16, "2stage (kernelName1='a', kernelName2='b')", "the log line found a row, these tables have none: "),
        (8, "2stage default", "the log line found no row, these tables have one: "),
    ],
)
def test_a_log_line_that_says_otherwise_is_contradicted(root: Path, tokens: int, path: str, said: str) -> None:
    key = KEY.replace(",8,", f",{tokens},", 1)
    done = run_moeshapes("explain", f"[fused_moe] using {path} for ({key})", cwd=root)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert bool(said) is ("the log line" in done.stdout)


def test_coverage_of_one_model(root: Path) -> None:
    done = run_moeshapes("coverage", "glm-5.2", cwd=root)
    assert done.returncode == 0, done.stderr
    assert "glm-5.2/tp4#target 6144/512/257/9 on gfx950/256" in done.stdout
    found = json.loads(run_moeshapes("coverage", "--format", "json", cwd=root).stdout)
    assert sum(found["totals"].values()) == 17 * len(found["deployments"])
    unknown = run_moeshapes("coverage", "glm", cwd=root)
    assert unknown.returncode == 2
    assert "there is no model `glm`: did you mean `glm-4.7` or `glm-5.2` or " in unknown.stderr


def test_a_key_is_explained_without_heavy_modules(root: Path) -> None:
    code = (
        "import sys; from moeshapes.cli import status_of;"
        f"status_of(['explain', '{KEY}']);"
        "print(sorted({'jsonschema', 'torch', 'numpy', 'pandas'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = run_python("-c", code, cwd=root)
    assert done.stderr.strip() == "[]"


def shown_by_readme(root: Path, command: str) -> str:
    _, _, after = (root / "README.md").read_text(encoding="utf-8").partition(f"```console\n$ {command}\n")
    return after.partition("```")[0]


def test_the_readme_shows_what_explain_prints(root: Path) -> None:
    command = "moeshapes explain glm-5.2/tp4 --tokens 7 --tokens 9"
    assert run_moeshapes(*command.split()[1:], cwd=root).stdout == shown_by_readme(root, command)


def test_the_readme_shows_what_coverage_prints(root: Path, aiter_configs: Path) -> None:
    done = run_moeshapes("coverage", "glm-5.2", "--tuned", str(aiter_configs), cwd=root)
    assert done.stdout == shown_by_readme(root, "moeshapes coverage glm-5.2 --tuned ../aiter")


def answers(root: Path, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(
        run_moeshapes("explain", *arguments, "--format", "json", cwd=root).stdout
    )
    return found


def test_gpt_oss_asks_for_another_format_from_256_tokens_on(root: Path, aiter_configs: Path) -> None:
    tuned = ("--tuned", str(aiter_configs))
    few, many = answers(root, "gpt-oss-120b/tp8-a16w4", "--tokens", "100", "--tokens", "300", *tuned)
    assert [answer["q_dtype_a"]["format"] for answer in (few, many)] == ["bf16", "fp4"]  # type: ignore[index]
    assert [answer["bucket"] for answer in (few, many)] == [128, 512]
    assert [str(answer["row"]["file"]).rpartition("/")[2] for answer in (few, many)] == [  # type: ignore[index]
        "gptoss_a16w4_tuned_fmoe.csv",
        "gptoss_fp4_tuned_fmoe.csv",
    ]


def test_both_blocks_of_deepseek_v41_flash_are_answered(root: Path) -> None:
    target, draft = answers(root, "deepseek-v4.1-flash/tp4", "--tokens", "40")
    for answer, experts in ((target, 385), (draft, 129)):
        assert (answer["bucket"], answer["row"], answer["key"]["expert"]) == (64, None, experts)  # type: ignore[index]
        assert answer["runs"]["step"] == 6  # type: ignore[index]
