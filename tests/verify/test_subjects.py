"""What is judged: a repository's own rows and uses, or those of given tables, with everything that is wrong there."""

from __future__ import annotations

from pathlib import Path

from moeshapes.verify.subjects import Asked, plan_of
from small_repository import MODEL, TABLE, tuned_line, write_small_repository
from table_text import text, write


def names(root: Path, *paths: Path) -> list[str]:
    return [item.subject.name.partition("token ")[2] for item in plan_of(root, Asked(paths))[0]]


def test_a_repository_is_its_rows_and_default_plans(tmp_path: Path) -> None:
    write_small_repository(tmp_path, tuned_line(8), tuned_line(1))
    assert names(tmp_path) == [f"8 ({TABLE}:2)", f"1 ({TABLE}:3)", "1 (default plan)", "8 (default plan)"]


def test_given_tables_are_their_rows_alone(tmp_path: Path) -> None:
    write_small_repository(tmp_path / "repository", tuned_line(8))
    other = write(tmp_path / "other_tuned_fmoe.csv", text(tuned_line(16), tuned_line(32)))
    assert names(tmp_path / "repository", other) == [f"16 ({other}:2)", f"32 ({other}:3)"]


def test_rows_of_a_given_table_have_the_repositorys_uses(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path / "repository")
    other = write(tmp_path / "other_tuned_fmoe.csv", text(tuned_line(8), tuned_line(16)))
    planned, _ = plan_of(root, Asked([other]))
    assert [item.subject.use.id for item in planned] == ["tiny/tp2#target", "undeclared#row"]


def test_a_malformed_row_is_a_finding_and_hides_no_other(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line(8), "gfx950,256,8", tuned_line(1))
    for paths in ([], [root / TABLE]):
        planned, findings = plan_of(root, Asked(paths))
        assert {item.subject.row.place.line for item in planned if item.subject.row} == {2, 4}
        assert (TABLE, 3) in {(finding.place.file, finding.place.line) for finding in findings}


def test_a_faulty_declaration_is_a_finding_and_hides_no_row(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line(8), model=MODEL.replace("hidden_size", "hiden_size"))
    for paths in ([], [root / TABLE]):
        planned, findings = plan_of(root, Asked(paths))
        assert [item.subject.use.id for item in planned] == ["undeclared#row"]
        assert any(finding.place.file == "models/tiny.yaml" for finding in findings)
