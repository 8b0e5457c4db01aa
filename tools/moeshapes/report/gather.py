"""Gathering: what a report is made of, read from a repository of shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from moeshapes import __version__
from moeshapes.coverage import Coverage, cover
from moeshapes.deployment import Deployment, deployments
from moeshapes.family import FOLDERS, OWN_CONFIGS, TRITON, Family, read_families
from moeshapes.git import open_git
from moeshapes.record import RECORDS
from moeshapes.report.evidence import Evidence
from moeshapes.report.links import Links
from moeshapes.report.page import render_page
from moeshapes.report.proof import proofs_of
from moeshapes.report.pull_request import PullRequest, serving
from moeshapes.repository import MODELS, SHAPES, load_declarations
from moeshapes.row_diff import rows_since
from moeshapes.runtime.merged import merge
from moeshapes.table import read_tuned_rows


def pull_request_of(root: Path, ref: str) -> PullRequest:
    """What changed below `root`, a repository of shapes, since it left `ref`. Raises GitError."""
    families = read_families(root)
    diff = rows_since(root, ref, families)
    declarations, _ = load_declarations(root)
    evidence = Evidence(root)
    proofs = tuple(proofs_of(diff.to_prove, declarations, evidence))
    retimed = tuple(proofs_of((change.after for change in diff.retimed), declarations, evidence))
    touched = serving(deployments(declarations), (*diff.to_prove, *diff.removed))
    git = open_git(root)
    head = git.commit("HEAD")
    return PullRequest(
        diff,
        proofs,
        retimed,
        tuple(coverages_of(families, touched)),
        tuple(evidence.unread.items()),
        head,
        bool(git.changed(head, [*FOLDERS, RECORDS, MODELS, SHAPES])),
    )


def page_of(root: Path, links: Links, now: datetime) -> str:
    """The page of everything below `root`, a repository of shapes."""
    declarations, _ = load_declarations(root)
    families = read_families(root)
    tables = (table for folder in (OWN_CONFIGS, TRITON) for table in families[folder].tuned.values())
    rows = [row for table in tables for row in read_tuned_rows(table)]
    proofs = list(proofs_of(rows, declarations, Evidence(root)))
    coverages = list(coverages_of(families, deployments(declarations)))
    made = f"Made by moeshapes {__version__} from commit {links.commit} on {now:%Y-%m-%d}"
    return render_page(proofs, coverages, links, made)


def coverages_of(families: Mapping[str, Family], asked: Iterable[Deployment]) -> Iterator[Coverage]:
    """The coverage of deployments by a repository's tables, of AITER's or of portable kernels as each names them."""
    by_kind: dict[str, list[Deployment]] = {}
    for deployment in asked:
        by_kind.setdefault(TRITON if deployment.is_portable else OWN_CONFIGS, []).append(deployment)
    for folder, some in by_kind.items():
        yield from cover(some, merge(families[folder].tuned.values()))
