"""The pull request that the gate is timed on: as clean as it is large."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from moeshapes.bench_gate import BASE, NEW_ROWS, write_pull_request
from moeshapes.gate.run import gate
from moeshapes.record import RECORDS

FEW = 60


def test_the_gate_passes_it_and_has_all_to_read(root: Path, aiter_configs: Path, tmp_path: Path) -> None:
    write_pull_request(root, aiter_configs, tmp_path, records=FEW)
    result = gate(tmp_path, BASE, aiter_configs, today=date(2026, 1, 1))
    assert [finding for finding in result.findings if finding.rule.name != "new-gap"] == []
    assert (len(result.diff.new), len(result.diff.changed), result.proven) == (NEW_ROWS, 0, NEW_ROWS)
    assert result.diff.merged > 2300
    assert len(list((tmp_path / RECORDS).rglob("*.json"))) == FEW
