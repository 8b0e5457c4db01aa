"""The workflows keep their promises: pinned, least permissions, no pull request's code where it does harm."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from moeshapes import claim
from moeshapes.device import COMPUTE_UNITS
from process import environment
from pull_requests import PullRequest, commit, make_origin
from small_repository import tuned_line
from workflows import LABEL, faults

FOLDER = Path(__file__).parent.parent / ".github" / "workflows"
WORKFLOWS = sorted(path.name for path in FOLDER.iterdir())
SHA = "3d3c42e5aac5ba805825da76410c181273ba90b1"


def text_of(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_has_no_fault(name: str) -> None:
    assert faults(name, text_of(name)) == []


def test_remedies_name_the_label_and_the_gpu_of_the_workflow_that_verifies() -> None:
    (job,) = yaml.safe_load(text_of("verify-gpu.yml"))["jobs"].values()
    assert job["if"] == LABEL == f"github.event.label.name == '{claim.LABEL}'"
    assert "mi350" in job["runs-on"]
    assert any("MI350" in board for board in COMPUTE_UNITS[claim.LABEL_GFX])


PLANTED = {
    "a tag": ("gate.yml", f"@{SHA} # v7.0.1", "@v7", "is not pinned to a commit"),
    "a version unsaid": ("gate.yml", f"@{SHA} # v7.0.1", f"@{SHA}", "version is not said"),
    "all permissions": ("gate.yml", "contents: read", "contents: write", "permissions at the top"),
    "no permissions": ("gate.yml", "permissions:\n  contents: read\n", "", "permissions at the top"),
    "a job that writes": ("verify-gpu.yml", "contents: read", "contents: write", "may write contents"),
    "write-all": ("unlabel.yml", "\n      pull-requests: write", " write-all", "has permissions write-all"),
    "a secret": ("gate.yml", "TOOL: ${{", "KEY: ${{ secrets.KEY }}\n          TOOL: ${{", "a secret is used"),
    "a title in a script": (
        "gate.yml",
        "run: moeshapes check",
        "run: echo ${{ github.event.pull_request.title }}; moeshapes check",
        "an expression in a script",
    ),
    "the privileged trigger": ("gate.yml", "  pull_request:\n", "  pull_request_target:\n", "without the label"),
    "any push": ("verify-gpu.yml", "[labeled]", "[labeled, synchronize]", "runs on ['labeled', 'synchronize']"),
    "no label": ("verify-gpu.yml", f"    if: {LABEL}\n", "", "without the label"),
    "a second way in": ("verify-gpu.yml", LABEL, f"{LABEL} || github.actor == 'x'", "no maintainer has labelled"),
    "a branch": ("verify-gpu.yml", "head.sha", "head.ref", "not of the commit that was labelled"),
    "a token left": ("checks.yml", "persist-credentials: false", "persist-credentials: true", "leaves its token"),
    "a cache": ("verify-gpu.yml", "fetch-depth: 0", "cache: pip", "a cache that other runs read"),
    "no limit": ("unlabel.yml", "    timeout-minutes: 5\n", "", "no limit of time"),
    "a tool within": ("gate.yml", "path: moeshapes", "path: change/moeshapes", "a checkout is within another"),
    "a change around the tool": ("gate.yml", "          path: change\n", "", "a checkout is within another"),
    "a change in the tool's place": ("gate.yml", "path: moeshapes", "path: change", "a checkout is within another"),
    "a change's own pip": (
        "gate.yml",
        "        env:\n          TOOL:",
        "        working-directory: change\n        env:\n          TOOL:",
        "modules are found first",
    ),
    "no change": ("gate.yml", "        working-directory: change\n", "", "something else than the pull request"),
    "one's own machine": ("gate.yml", "runs-on: ubuntu-24.04", "runs-on: self-hosted", "no maintainer has labelled"),
}


@pytest.mark.parametrize(("name", "old", "new", "said"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(name: str, old: str, new: str, said: str) -> None:
    assert old in text_of(name)
    assert any(said in fault for fault in faults(name, text_of(name).replace(old, new, 1)))


def test_the_label_of_a_push_and_of_the_run_are_one() -> None:
    label = LABEL.split("'")[1]
    assert text_of("unlabel.yml").count(label) >= 2
    assert f"contains(github.event.pull_request.labels.*.name, '{label}')" in text_of("unlabel.yml")


def gate(request: PullRequest, folder: Path, signers: str = "") -> subprocess.CompletedProcess[str]:
    """What the workflow's step says of a clone, run as a runner does."""
    jobs = yaml.load(text_of("gate.yml"), Loader=yaml.BaseLoader)["jobs"]
    (script,) = [step["run"] for step in jobs["gate"]["steps"] if step.get("name") == "Gate"]
    command = folder / "moeshapes"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m moeshapes "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    told = {"BASE": "main", "SIGNERS": signers, "AITER": "", "RUNNER_TEMP": str(folder)}
    known = environment()
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=request.root,
        env=known | told | {"PATH": f"{folder}:{known['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_gates_script_judges_a_pull_request(tmp_path: Path) -> None:
    request = make_origin(tmp_path, tuned_line(8)).clone()
    assert gate(request, tmp_path).returncode == 0
    request.table(tuned_line(1), tuned_line(8))
    commit(request.root)
    done = gate(request, tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=generated/aiter/configs/model_configs/tiny_tuned_fmoe.csv,line=2,")
    assert "since origin/main" in done.stdout


def test_who_may_sign_is_read_from_the_base(tmp_path: Path) -> None:
    request = make_origin(tmp_path, tuned_line(8)).clone().file("signers", "a pull request's own")
    commit(request.root)
    done = gate(request, tmp_path, signers="signers")
    assert done.returncode == 128
    assert "does not exist in 'origin/main'" in done.stderr or "not in 'origin/main'" in done.stderr


@pytest.mark.parametrize("name", WORKFLOWS)
def test_scripts_are_shell(name: str) -> None:
    if not shutil.which("bash"):
        pytest.skip("no bash is here")
    jobs = yaml.load(text_of(name), Loader=yaml.BaseLoader)["jobs"]
    for script in [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]:
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert not done.returncode, done.stderr
