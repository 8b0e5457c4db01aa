"""The gate's policy: what it asks of records. It stands in policy.yaml; without the file, the defaults hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moeshapes.document import Document, load_document, parse_document
from moeshapes.findings import Finding
from moeshapes.schema_check import check_schema

POLICY = "policy.yaml"


@dataclass(frozen=True)
class Policy:
    """The thresholds, as schema/policy.schema.json describes them. Errors are shares of the protocol's limit."""

    max_over_limit: float = 1.0
    accuracy_margin: float = 0.25
    determinism_required: bool = False
    slower_blocks: bool = True
    speed_required: bool = False
    numerics_protocol: int = 1
    speed_protocol: int = 1
    max_age_days: int | None = None
    aiter_commits: tuple[str, ...] = ()

    def serves(self, aiter: str) -> bool:
        """Whether a record made with that AITER counts. Names of one commit may be cut off at different lengths."""
        served = (aiter.startswith(commit) or commit.startswith(aiter) for commit in self.aiter_commits)
        return not self.aiter_commits or (aiter != "" and any(served))


def read_policy(root: Path) -> tuple[Policy, list[Finding]]:
    """The policy of the repository at `root`, and all that is wrong with it; what is at fault is as without it."""
    path = root / POLICY
    if not path.is_symlink() and not path.exists():
        return Policy(), []
    return _policy(*load_document(path, POLICY))


def parse_policy(content: bytes, name: str) -> tuple[Policy, list[Finding]]:
    """As `read_policy`, from a file's bytes. `name` is what findings call the file."""
    return _policy(*parse_document(content, name))


def _policy(document: Document | None, findings: list[Finding]) -> tuple[Policy, list[Finding]]:
    if document is None:
        return Policy(), findings
    value, wrong = check_schema(document, "policy")
    commits = tuple(commit for commit in value.pop("aiter_commits", ()) if commit)
    facts: dict[str, Any] = {**value, "aiter_commits": commits}
    return Policy(**facts), [*findings, *wrong]
