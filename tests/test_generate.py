from __future__ import annotations

from pathlib import Path

import pytest

from declared import SHAPE, write_repository
from moeshapes.findings import Finding
from moeshapes.generate import GenerateResult, generate

GENERAL = "generated/aiter/configs/untuned_fmoe.csv"
RULES = "generated/RULES.md"
DEMO = "generated/aiter/configs/model_configs/demo_untuned_fmoe.csv"

TRITON = "generated/triton/triton_demo_untuned_fmoe.csv"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two CSVs declared and generated."""
    other = SHAPE.replace("demo_untuned", "untuned").replace("tp: 4", "tp: 2")
    root = write_repository(tmp_path, {"demo/tp4": SHAPE, "demo/tp2": other})
    assert generate(root, check=False).written == [DEMO, GENERAL, RULES]
    return root


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (root / "generated").rglob("*") if path.is_file()}


def check(root: Path) -> list[Finding]:
    before = contents(root)
    result = generate(root, check=True)
    assert contents(root) == before
    assert (result.written, result.removed) == ([], [])
    return result.findings


def seen(root: Path) -> list[str]:
    return [f"{finding.rule.name} {finding.place}" for finding in check(root)]


def test_what_was_generated_is_fresh(repository: Path) -> None:
    assert check(repository) == []
    assert generate(repository, check=False) == GenerateResult([], [], [], [DEMO, GENERAL, RULES])


def test_a_table_has_aiters_layout(repository: Path) -> None:
    content = (repository / DEMO).read_bytes()
    header, first, second, end = content.split(b"\n")
    assert header.startswith(b"token,model_dim,inter_dim,expert,topk,act_type,dtype,")
    assert (first[:8], second[:8], end) == (b"1,5120,5", b"32,5120,", b"")
    assert b"\r" not in content


def test_a_missing_file_is_named(repository: Path) -> None:
    (repository / DEMO).unlink()
    (finding,) = check(repository)
    assert (finding.rule.name, str(finding.place)) == ("missing-file", DEMO)
    assert "3 lines" in finding.message


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("32,5120,", "33,5120,", 3, "expected `32,5120,"),
        ("\n1,5120,576", "\n2,5120,288", 2, "1,0`: token 1 and not 2, inter_dim 576 and not 288"),
        ("token,", "tokens,", 1, "found `tokens,"),
        ("1,0\n32", "1,0\r\n32", 2, "1,0\r`: doweight_stage1 0 and not 0\r"),
        ("per_Token,1,0\n", "per_Token,1,0\nx\n", 3, "found `x`"),
    ],
)
def test_a_stale_file_shows_its_first_differing_row(
    repository: Path, old: str, new: str, line: int, message: str
) -> None:
    path = repository / DEMO
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))
    (finding,) = check(repository)
    assert (finding.rule.name, str(finding.place)) == ("stale-file", f"{DEMO}:{line}")
    assert message in finding.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda content: content[:-1], "expected the end of the file, found the end of the file without a newline"),
        (lambda content: content + b"\n", "expected the end of the file without a newline, found the end of the file"),
        (lambda content: b"", "expected `token,"),
        (lambda content: b"\xff" + content, "found `\\xfftoken,"),
    ],
)
def test_ends_and_foreign_bytes_are_shown(repository: Path, content: object, message: str) -> None:
    path = repository / DEMO
    assert callable(content)
    path.write_bytes(content(path.read_bytes()))
    (finding,) = check(repository)
    assert message in finding.message


def test_a_surplus_file_is_named_and_removed(repository: Path) -> None:
    surplus = "generated/aiter/configs/model_configs/old_untuned_fmoe.csv"
    (repository / surplus).write_text("token\n")
    assert seen(repository) == [f"surplus-file {surplus}"]
    assert generate(repository, check=False).removed == [surplus]
    assert check(repository) == []


def test_tables_of_the_portable_kernels_stand_apart(repository: Path) -> None:
    portable = SHAPE.replace("csv: demo", "csv: triton_demo").replace("gfx950, cu_num: 256", "sm_90, cu_num: 132")
    (repository / "shapes/demo/tp4-triton.yaml").write_text(portable)
    assert generate(repository, check=False).written == [TRITON]
    assert (repository / TRITON).read_bytes() == (repository / DEMO).read_bytes()
    (repository / TRITON).write_text("token\n")
    assert seen(repository) == [f"stale-file {TRITON}:1"]
    (repository / "shapes/demo/tp4-triton.yaml").unlink()
    assert seen(repository) == [f"surplus-file {TRITON}"]
    assert generate(repository, check=False).removed == [TRITON]
    assert check(repository) == []


def test_measured_files_are_never_touched(repository: Path) -> None:
    measured = [
        repository / "generated/aiter/configs/model_configs/demo_tuned_fmoe.csv",
        repository / "generated/records/demo_tuned_fmoe.csv/record.json",
        repository / "generated/triton/triton_demo_tuned_fmoe.csv",
    ]
    for path in measured:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("measured")
    assert check(repository) == []
    (repository / "shapes/demo/tp4.yaml").unlink()
    assert generate(repository, check=False).removed == [DEMO]
    assert all(path.read_text() == "measured" for path in measured)


def test_nothing_is_written_where_a_declaration_is_faulty(repository: Path) -> None:
    (repository / "shapes/demo/tp4.yaml").write_text(SHAPE.replace("[1, 32]", "[1, 2, 32]"))
    (repository / "shapes/demo/tp8.yaml").write_text(SHAPE.replace("tp: 4", "tp: 7"))
    before = (repository / DEMO).read_bytes()
    result = generate(repository, check=False)
    assert [finding.rule.name for finding in result.findings] == ["does-not-divide"]
    assert (result.written, result.removed, result.unchanged) == ([], [], [])
    assert (repository / DEMO).read_bytes() == before


def test_a_linked_folder_is_not_written_through(repository: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    folder = (repository / DEMO).parent
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    (elsewhere / "demo_untuned_fmoe.csv").write_text("theirs")
    result = generate(repository, check=False)
    assert [finding.rule.name for finding in result.findings] == ["linked-folder"]
    assert (elsewhere / "demo_untuned_fmoe.csv").read_text() == "theirs"


@pytest.mark.parametrize("linked", ["generated", "generated/triton"])
def test_a_link_is_named_once_whatever_stands_behind_it(repository: Path, tmp_path: Path, linked: str) -> None:
    path, elsewhere = repository / linked, tmp_path / "elsewhere"
    elsewhere.mkdir()
    if path.exists():
        path.rename(elsewhere / "moved")
    path.symlink_to(elsewhere)
    assert [str(finding.place) for finding in generate(repository, check=False).findings] == [linked]
    assert list(elsewhere.rglob("*.csv")) == list((elsewhere / "moved").rglob("*.csv"))


def test_a_linked_file_is_replaced_and_its_target_left(repository: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.csv"
    target.write_bytes((repository / DEMO).read_bytes())
    (repository / DEMO).unlink()
    (repository / DEMO).symlink_to(target)
    assert seen(repository) == [f"missing-file {DEMO}"]
    generate(repository, check=False)
    assert not (repository / DEMO).is_symlink()
    assert target.exists()


def test_this_repository_is_fresh(root: Path) -> None:
    assert check(root) == []


def test_the_rows_of_deepseek_v4_1(root: Path) -> None:
    path = root / "generated/aiter/configs/model_configs/dsv41_fp8_untuned_fmoe.csv"
    tail = "ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,torch.float4_e2m1fn_x2,QuantType.per_1x32,1,0"
    target = [f"{token},5120,640,385,7,{tail}" for token in (1, 32, 64, 128, 256)]
    draft = [f"{token},5120,640,129,4,{tail}" for token in (1, 2, 32)]
    assert path.read_text().splitlines()[1:] == draft + target
