"""Everything about a repository of shapes that a CPU can check, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moeshapes.findings import Finding
from moeshapes.generate import generate
from moeshapes.keys import check_keys
from moeshapes.lint import lint_files, tuned_files
from moeshapes.surplus import record_findings


@dataclass(frozen=True)
class CheckResult:
    """Everything found among how many tuned rows, and in words what of it is waived or known."""

    findings: tuple[Finding, ...]
    rows: int
    set_aside: str = ""


def check_repository(root: Path, baseline: Path | None = None) -> CheckResult:
    """Declarations, freshness of the generated files, uniqueness of keys, static rules on the tuned rows, records."""
    generated = generate(root, check=True)
    keys = check_keys(root)
    lint = lint_files(tuned_files(root), root, baseline)
    findings = (*generated.findings, *keys.findings, *lint.findings, *record_findings(root))
    return CheckResult(findings, keys.rows, lint.set_aside)
