"""Lint of whole tables: text faults, rules and a repository's own kernel policies, counted and named from the root."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from moeshapes.lint import lint_files, tuned_files

DENIED = """
kernels:
  deny:
    - {match: {mode: atomic}, reason: planted}
"""


@pytest.fixture
def repository(root: Path, tmp_path: Path, aiter_configs: Path) -> Path:
    """What this repository declares, with the first ten rows of AITER's table for GLM-5 as a tuned table."""
    for folder in ("models", "shapes"):
        shutil.copytree(root / folder, tmp_path / folder)
    configs = tmp_path / "generated" / "aiter" / "configs" / "model_configs"
    configs.mkdir(parents=True)
    (configs / "glm5_fp4_untuned_fmoe.csv").write_text("token\n")
    whole = (aiter_configs / "model_configs" / "glm5_fp4_tuned_fmoe.csv").read_text().splitlines(keepends=True)
    glm52 = [line for line in whole[1:] if ",6144,512,257,9," in line]
    (configs / "glm5_fp4_tuned_fmoe.csv").write_text("".join([whole[0], *glm52[:10]]))
    return tmp_path


def test_tuned_tables_are_found_and_untuned_ones_are_not(repository: Path) -> None:
    assert [path.name for path in tuned_files(repository)] == ["glm5_fp4_tuned_fmoe.csv"]


def test_a_policy_of_the_repository_counts(repository: Path) -> None:
    clean = lint_files(tuned_files(repository), repository)
    assert (clean.rows, len(clean.tables)) == (10, 1)
    assert not [finding for finding in clean.findings if finding.rule.name == "denied-kernel"]

    shape = repository / "shapes" / "glm-5.2" / "tp4.yaml"
    shape.write_text(shape.read_text() + DENIED)
    denied = lint_files(tuned_files(repository), repository)
    found = [finding for finding in denied.findings if finding.rule.name == "denied-kernel"]
    assert found
    assert {finding.place.file for finding in found} == {
        "generated/aiter/configs/model_configs/glm5_fp4_tuned_fmoe.csv"
    }
    assert not [f for f in lint_files(tuned_files(repository), None).findings if f.rule.name == "denied-kernel"]


def test_faults_of_text_and_rows_that_can_be_read_are_both_there(repository: Path) -> None:
    table = tuned_files(repository)[0]
    table.write_text(table.read_text() + "<<<<<<< HEAD\n")
    result = lint_files([table], repository)
    assert result.rows == 10
    assert [finding.place.line for finding in result.findings if finding.rule.name == "conflict-marker"] == [12]
