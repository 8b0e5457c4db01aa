"""What the gate's choice of rows rests on: rules whose findings are errors judge a row by itself."""

from __future__ import annotations

from pathlib import Path

from moeshapes.lint import tuned_files_in
from moeshapes.rule import Severity
from moeshapes.rules import lint_rows
from moeshapes.table import read_table, read_tuned_rows


def test_a_row_has_the_same_errors_whichever_others_are_judged_with_it(aiter_configs: Path) -> None:
    rows = [row for path in tuned_files_in(aiter_configs) for row in read_tuned_rows(read_table(path))]
    parts = [rows[start::2] for start in range(2)]
    whole, *apart = [
        {found for found in lint_rows(some) if found.rule.severity is Severity.ERROR} for some in (rows, *parts)
    ]
    assert whole == set.union(*apart)
    assert whole
