"""What is wrong with a GitHub workflow: what it lets a pull request reach, and what may change under it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

LABEL = "github.event.label.name == 'verify-gpu'"
"""What a job that runs a pull request's code beside a writable token or on a machine of one's own must ask for."""
_PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
_USES = re.compile(r"^ *(?:- )?uses: .*", re.MULTILINE)
_SAID = re.compile(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", re.MULTILINE)
_WRITES = {"unlabel.yml": {"pull-requests"}}
"""What a workflow's jobs may write."""
_HOSTED = re.compile(r"ubuntu-\d\d\.\d\d")


def faults(name: str, text: str) -> list[str]:
    """One text a fault. All values are read as text, so that `on` stays a word."""
    workflow: dict[str, Any] = yaml.load(text, Loader=yaml.BaseLoader)
    found = [*_of_workflow(workflow, text)]
    for job in workflow["jobs"].values():
        found += [*_of_job(name, workflow, job)]
        for step in job["steps"]:
            found += [*_of_step(workflow, job, step)]
        found += _of_folders(job["steps"])
    return found


def _triggers(workflow: dict[str, Any]) -> dict[str, Any]:
    on = workflow["on"]
    return dict(on) if isinstance(on, dict) else dict.fromkeys([on] if isinstance(on, str) else on, "")


def _is_privileged(workflow: dict[str, Any]) -> bool:
    """Whether a pull request's event runs it with the base's token and secrets."""
    return bool({"pull_request_target", "workflow_run", "issue_comment"} & set(_triggers(workflow)))


def _of_workflow(workflow: dict[str, Any], text: str) -> Iterator[str]:
    if workflow.get("permissions") not in ({}, {"contents": "read"}):
        yield f"permissions at the top are {workflow.get('permissions')}"
    if "secrets." in text or "secrets[" in text or "secrets: inherit" in text:
        yield "a secret is used"
    if not all(_SAID.search(line) for line in _USES.findall(text)):
        yield "an action's version is not said beside its commit"
    triggers = _triggers(workflow)
    types = (triggers.get("pull_request_target") or {}).get("types", []) if "pull_request_target" in triggers else None
    if types is not None and types not in (["labeled"], ["synchronize", "reopened"]):
        yield f"pull_request_target runs on {types}"


def _of_job(name: str, workflow: dict[str, Any], job: dict[str, Any]) -> Iterator[str]:
    granted = job.get("permissions", {})
    if not isinstance(granted, dict):
        yield f"a job has permissions {granted}"
    elif wide := {key for key, level in granted.items() if level == "write"} - _WRITES.get(name, set()):
        yield f"a job may write {', '.join(sorted(wide))}"
    if "timeout-minutes" not in job:
        yield "a job has no limit of time"
    if not _HOSTED.fullmatch(str(job["runs-on"])) and not _asks_for_label(job):
        yield "a machine of one's own runs what no maintainer has labelled"


def _asks_for_label(job: dict[str, Any]) -> bool:
    """The whole condition, so that no `||` opens a second way in."""
    return bool(job.get("if") == LABEL)


def _of_step(workflow: dict[str, Any], job: dict[str, Any], step: dict[str, Any]) -> Iterator[str]:
    if "${{" in step.get("run", ""):
        yield "an expression in a script: hand it over in env"
    action, told = step.get("uses", ""), step.get("with", {})
    if action and not _PINNED.fullmatch(action):
        yield f"{action} is not pinned to a commit"
    if _is_checkout(step):
        yield from _of_checkout(workflow, job, told)
    if _is_privileged(workflow) and ("cache" in told or action.startswith("actions/cache")):
        yield "a cache that other runs read is written beside a pull request's code"


def _of_folders(steps: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Where a tool comes from elsewhere, a pull request could put what it likes in its place, or before it."""
    folders = [str(step.get("with", {}).get("path", ".")) for step in steps if _is_checkout(step)]
    if len(folders) < 2:
        return
    if any(not re.fullmatch(r"[a-z]+", folder) for folder in folders) or len({*folders}) < len(folders):
        yield "a checkout is within another, which may have a link in its place"
    for step in steps:
        in_its_folder = step.get("working-directory", ".") == folders[0]
        if in_its_folder and "python" in step.get("run", ""):
            yield "python is started where a pull request's modules are found first"
        if not in_its_folder and re.search(r"\bmoeshapes (?:check|gate|report)", step.get("run", "")):
            yield "something else than the pull request is judged"


def _is_checkout(step: dict[str, Any]) -> bool:
    return str(step.get("uses", "")).startswith("actions/checkout@")


def _of_checkout(workflow: dict[str, Any], job: dict[str, Any], told: dict[str, Any]) -> Iterator[str]:
    if told.get("persist-credentials") != "false":
        yield "a checkout leaves its token behind"
    if not _is_privileged(workflow):
        return
    if told.get("ref") != "${{ github.event.pull_request.head.sha }}":
        yield "a checkout is not of the commit that was labelled"
    if not _asks_for_label(job):
        yield "a pull request's code is checked out without the label"
