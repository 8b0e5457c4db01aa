from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moeshapes.adopt import FULL_HEADER, AdoptResult, adopt
from moeshapes.expand import Declarations, DeclaredRow
from moeshapes.findings import Place
from moeshapes.keys import check_keys
from moeshapes.policy import Deny
from moeshapes.repository import load_declarations
from moeshapes.row import TunedRow
from moeshapes.rule import Severity
from moeshapes.rules import lint_rows
from moeshapes.rules.throughput import throughput_cells
from moeshapes.shape import Gpu
from moeshapes.table import Table, read_table, read_tuned_rows
from moeshapes.use import Use
from small_repository import PORTABLE_TABLE, portable_line, tuned_line, write_both_backends
from small_repository import TABLE as TINY
from table_text import STAGE1, STAGE2, line, row, table, text, write

CSV = "glm5_fp4_untuned_fmoe.csv"
CONFIGS = Path("generated/aiter/configs")
TARGET = CONFIGS / "model_configs" / "glm5_fp4_tuned_fmoe.csv"
USE = Use("glm-5.2/tp4", "target", "a8w4", "silu")
NOTE = "MI355X, ROCm 7.0"


def declare(*rows: TunedRow, csv: str = CSV, deny: tuple[Deny, ...] = ()) -> Declarations:
    place = Place("shapes/glm-5.2/tp4.yaml", 9, 5)
    declared = (DeclaredRow(csv, r.key.shape, (Gpu(r.key.gfx, r.key.cu_num),), USE, deny, place) for r in rows)
    return Declarations({}, (), tuple(declared))


def adopt_all(source: Table, root: Path, declarations: Declarations, note: str = NOTE) -> AdoptResult:
    return adopt(source, read_tuned_rows(source), note, root, declarations)


def rules(result: AdoptResult) -> list[str]:
    """What the rows are refused by. Samples of other dims than the usual ones are warned of for their throughput."""
    return [finding.rule.id for finding in result.findings if finding.rule.severity is Severity.ERROR]


def test_a_new_table_has_the_current_header(tmp_path: Path) -> None:
    source = table(line(token="16"), line(), name="measured/tuned_fmoe.csv")
    result = adopt_all(source, tmp_path, declare(row(), row(token="16")))
    assert rules(result) == []
    assert result.written == (tmp_path / TARGET,)
    assert (tmp_path / TARGET).read_bytes() == text(line(), line(token="16"))
    assert result.text.startswith(
        "Adopt 2 tuned rows from tuned_fmoe.csv\n\nSource: MI355X, ROCm 7.0\n\n" + TARGET.as_posix()
    )
    assert f"60.75 µs, block_m 32, {STAGE1} + {STAGE2}" in result.text


def test_the_general_table_stands_above_the_models(tmp_path: Path) -> None:
    result = adopt_all(table(line()), tmp_path, declare(row(), csv="untuned_fmoe.csv"))
    assert result.written == (tmp_path / CONFIGS / "tuned_fmoe.csv",)


def test_rows_go_to_the_table_of_their_kernels(tmp_path: Path) -> None:
    """A key may have a row of AITER's and one of the portable kernels, out of one source."""
    declarations, _ = load_declarations(write_both_backends(tmp_path))
    on_amd = {"gfx": "gfx950", "cu_num": "256"}
    source = table(tuned_line(8), portable_line(8, **on_amd), portable_line(8))
    result = adopt_all(source, tmp_path, declarations)
    assert rules(result) == []
    assert result.written == (tmp_path / TINY, tmp_path / PORTABLE_TABLE)
    assert (tmp_path / PORTABLE_TABLE).read_bytes() == text(portable_line(8, **on_amd), portable_line(8))
    assert (tmp_path / TINY).read_bytes() == text(tuned_line(8))


def test_a_row_that_is_declared_for_the_other_kernels_is_refused(tmp_path: Path) -> None:
    write_both_backends(tmp_path)
    (tmp_path / "shapes/tiny/tp2-triton.yaml").unlink()
    declarations, _ = load_declarations(tmp_path)
    on_amd = portable_line(8, gfx="gfx950", cu_num="256")
    (finding,) = adopt_all(table(on_amd), tmp_path, declarations).findings
    assert finding.rule.name == "undeclared-row"
    assert finding.message.endswith(" for the portable kernels")


def test_an_old_header_is_brought_up_to_date(tmp_path: Path) -> None:
    old = tuple(column for column in FULL_HEADER if column not in ("gfx", "xbf16", "flat", "_tag"))
    adopt_all(table(line(old), header=old), tmp_path, declare(row()))
    assert (tmp_path / TARGET).read_bytes() == text(line())


def test_a_displaced_row_is_told_whole_and_others_stay(tmp_path: Path) -> None:
    before = text(line(), line(token="16"), line(token="32"))
    write(tmp_path / TARGET, before)
    faster = line(token="16", us="50", us1="29.75")
    result = adopt_all(table(faster), tmp_path, declare(row(token="16")))
    assert (tmp_path / TARGET).read_bytes() == text(line(), faster, line(token="32"))
    assert f"    displaces {line(token='16')}" in result.text.splitlines()


def test_rows_of_another_tag_are_not_displaced(tmp_path: Path) -> None:
    write(tmp_path / TARGET, text(line()))
    adopt_all(table(line(_tag="exact")), tmp_path, declare(row()))
    assert (tmp_path / TARGET).read_bytes() == text(line(), line(_tag="exact"))


def test_the_same_row_again_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / TARGET, text(line()))
    result = adopt_all(table(line()), tmp_path, declare(row()))
    assert (result.findings, result.written) == ((), ())
    assert result.text.startswith(f"There already: {TARGET.as_posix()}\n  gfx950/256 token 8 ")


def test_rows_that_are_there_stand_below_the_commit_message(tmp_path: Path) -> None:
    write(tmp_path / TARGET, text(line()))
    result = adopt_all(table(line(), line(token="16")), tmp_path, declare(row(), row(token="16")))
    message, _, present = result.text.partition("There already: ")
    assert message.startswith("Adopt 1 tuned row from a_tuned_fmoe.csv\n")
    assert "token 16 " in message
    assert "token 8 " in present


def test_an_existing_header_and_unknown_columns_stay(tmp_path: Path) -> None:
    header = (*FULL_HEADER, "lds_bytes")
    write(tmp_path / TARGET, text(line(header, lds_bytes="160"), header=header).removesuffix(b"\n"))
    adopt_all(table(line(token="4")), tmp_path, declare(row(token="4")))
    assert (tmp_path / TARGET).read_bytes() == text(
        line(header, token="4"), line(header, lds_bytes="160"), header=header
    )


def test_unknown_columns_come_along_into_a_new_table(tmp_path: Path) -> None:
    header = (*FULL_HEADER[:3], "lds_bytes", "empty", *FULL_HEADER[3:])
    adopt_all(table(line(header, lds_bytes="160"), header=header), tmp_path, declare(row()))
    expected = (*FULL_HEADER[:-3], "lds_bytes", *FULL_HEADER[-3:])
    assert (tmp_path / TARGET).read_bytes() == text(line(expected, lds_bytes="160"), header=expected)


@pytest.mark.parametrize(("column", "value"), [("flat", "1"), ("xbf16", "1"), ("_tag", "exact"), ("lds_bytes", "160")])
def test_a_value_without_a_column_is_not_lost(column: str, value: str, tmp_path: Path) -> None:
    header = tuple(name for name in FULL_HEADER if name != column)
    before = text(line(header, token="4"), header=header)
    write(tmp_path / TARGET, before)
    wide = tuple(dict.fromkeys((*FULL_HEADER, column)))
    result = adopt_all(table(line(wide, **{column: value}), header=wide), tmp_path, declare(row()))
    assert rules(result) == ["MOE135"]
    assert (tmp_path / TARGET).read_bytes() == before


def test_an_architecture_that_cu_num_does_not_tell_needs_the_gfx_column(tmp_path: Path) -> None:
    header = FULL_HEADER[1:]
    write(tmp_path / TARGET, text(line(header, token="4"), header=header))
    for gfx, expected in (("gfx950", []), ("gfx1250", ["MOE135"])):
        source = table(line(gfx=gfx))
        assert rules(adopt_all(source, tmp_path, declare(*read_tuned_rows(source)))) == expected


def test_all_or_nothing_is_written(tmp_path: Path) -> None:
    """Every objection is found in one run, and a sound row does not slip in beside a faulty one."""
    source = table(line(), line(token="16"), line(token="32", block_m="64"), line(token="64"), line(token="64"))
    result = adopt_all(source, tmp_path, declare(row(), row(token="32"), row(token="64")), note=" ")
    assert sorted(rules(result)) == ["MOE133", "MOE134", "MOE134", "MOE136", "MOE304", "MOE304"]
    assert (result.text, result.written) == ("", ())
    assert not (tmp_path / "generated").exists()


def test_a_row_for_another_gpu_is_undeclared(tmp_path: Path) -> None:
    assert rules(adopt_all(table(line(cu_num="304")), tmp_path, declare(row()))) == ["MOE133"]


def test_rows_with_faults_are_refused(tmp_path: Path) -> None:
    assert rules(adopt_all(table(line(token="8.0")), tmp_path, declare(row()))) == ["MOE121"]


def test_what_check_will_warn_of_is_said_at_once_and_stops_nothing(tmp_path: Path) -> None:
    result = adopt_all(table(line(tflops="99")), tmp_path, declare(row()))
    assert [(found.rule.id, str(found.place)) for found in result.findings] == [("MOE160", "a_tuned_fmoe.csv:2")]
    assert result.written == (tmp_path / TARGET,)
    assert "MOE160" in {found.rule.id for found in lint_rows(read_tuned_rows(read_table(tmp_path / TARGET)))}


def test_no_neighbours_are_missed_before_a_row_stands_beside_them(tmp_path: Path) -> None:
    for token in ("1", "8"):
        chosen = row(token=token)
        cells = dict(zip(("tflops", "bw"), throughput_cells(chosen.key.shape, chosen.us), strict=True))
        result = adopt_all(table(line(token=token, **cells)), tmp_path, declare(row(token="1"), row(token="8")))
        assert result.findings == ()


def test_policies_hold(tmp_path: Path) -> None:
    deny = Deny({"out_quant": "fp8"}, "padded columns are not written", Place("shapes/glm-5.2/tp4.yaml", 20, 7))
    assert rules(adopt_all(table(line()), tmp_path, declare(row(), deny=(deny,)))) == ["MOE307"]


def test_a_faulty_target_is_not_written(tmp_path: Path) -> None:
    before = text(line(token="4"), "<<<<<<< HEAD")
    write(tmp_path / TARGET, before)
    assert rules(adopt_all(table(line()), tmp_path, declare(row()))) == ["MOE113"]
    assert (tmp_path / TARGET).read_bytes() == before


@pytest.mark.parametrize("csv", ["../untuned_fmoe.csv", "/tmp/untuned_fmoe.csv", "untuned.csv", "a_untuned_fmoe.txt"])
def test_names_outside_the_folder_or_the_family_are_refused(csv: str, tmp_path: Path) -> None:
    assert rules(adopt_all(table(line()), tmp_path, declare(row(), csv=csv))) == ["MOE137"]
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_no_file_is_all_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / TARGET).mkdir(parents=True)
    assert rules(adopt_all(table(line()), tmp_path, declare(row()))) == ["MOE106"]


def test_nothing_is_written_through_a_linked_folder(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for folder in (root, elsewhere):
        folder.mkdir()
    (root / "generated").symlink_to(elsewhere)
    assert rules(adopt_all(table(line()), root, declare(row()))) == ["MOE404"]
    assert list(elsewhere.iterdir()) == []


def test_notes_are_printable(tmp_path: Path) -> None:
    result = adopt_all(table(line()), tmp_path, declare(row()), note="a\x1b[31m")
    assert "\x1b" not in result.text


_VARIED = st.fixed_dictionaries({"token": st.sampled_from(["1", "2", "16"]), "topk": st.sampled_from(["8", "9"])})


@given(st.lists(_VARIED, min_size=1, max_size=6, unique_by=lambda cells: (cells["token"], cells["topk"])))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_order_is_canonical_and_keys_stay_unique(tmp_path: Path, varied: list[dict[str, str]]) -> None:
    """However rows come in, one by one or together, the table is the same and free of collisions."""
    lines = [line(**cells) for cells in varied]
    declarations = declare(*read_tuned_rows(table(*lines)))
    together, apart = tmp_path / "together", tmp_path / "apart"
    for root in (together, apart):
        (root / TARGET).unlink(missing_ok=True)
    adopt_all(table(*lines), together, declarations)
    for one in reversed(lines):
        adopt_all(table(one), apart, declarations)
    assert (together / TARGET).read_bytes() == (apart / TARGET).read_bytes()
    result = check_keys(together)
    assert (result.findings, result.rows) == ((), len(lines))
    tokens = [(r.key.shape.topk, r.key.shape.token) for r in read_tuned_rows(read_table(together / TARGET))]
    assert tokens == sorted(tokens)
