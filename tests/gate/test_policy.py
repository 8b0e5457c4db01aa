from __future__ import annotations

import json
import re
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from moeshapes.findings import render
from moeshapes.gate.policy import POLICY, Policy, parse_policy, read_policy


def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((resources.files("moeshapes") / "schema" / "policy.schema.json").read_text())
    return loaded


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert read_policy(tmp_path) == (Policy(), [])
    (tmp_path / POLICY).write_text("{}\n")
    assert read_policy(tmp_path) == (Policy(), [])


def test_the_schema_tells_an_editor_every_default() -> None:
    properties = schema()["properties"]
    assert list(properties) == [field.name for field in fields(Policy)]
    told = {name: part["default"] for name, part in properties.items() if "default" in part}
    assert Policy(**told) == Policy()
    assert set(properties) - set(told) == {"max_age_days", "aiter_commits"}


def test_this_repositorys_own_policy_is_sound_and_says_what_holds(root: Path) -> None:
    (built,) = re.findall(r"^ARG AITER_COMMIT=(.+)$", (root / "Dockerfile").read_text(), re.MULTILINE)
    assert read_policy(root) == (Policy(aiter_commits=(built,)), [])
    assert (root / POLICY).read_text().startswith("# yaml-language-server: $schema=schema/policy.schema.json\n")


def test_what_a_file_says_holds_and_the_rest_is_default() -> None:
    policy, findings = parse_policy(b"max_over_limit: 0.5\nspeed_required: true\naiter_commits: [e4048607a5]\n", POLICY)
    assert findings == []
    assert policy == Policy(max_over_limit=0.5, speed_required=True, aiter_commits=("e4048607a5",))


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("slower_block: false", "1:1", "MOE010 unknown key `slower_block`: did you mean `slower_blocks`?"),
        ("slower_blocks: no", "1:16", "MOE012 `slower_blocks` must be true or false, not the text `no`"),
        ("max_over_limit: 2", "1:17", "MOE013 `max_over_limit` must be at most 1, not 2"),
        ("accuracy_margin: .inf", "1:18", "MOE012 `accuracy_margin` must be a number, not inf"),
        (
            "aiter_commits: [main]",
            "1:17",
            "MOE013 item 1 of `aiter_commits` is the text `main`: "
            "it must be 8 or more hexadecimal digits of a commit's name",
        ),
        ("[1]", "1:1", "MOE012 the document must be a mapping, not a list"),
        ("a: b: c", "1:5", "MOE002 not valid YAML: mapping values are not allowed in this context"),
    ],
)
def test_what_is_wrong_stands_at_its_place_and_loosens_nothing(text: str, place: str, message: str) -> None:
    policy, findings = parse_policy(f"{text}\n".encode(), POLICY)
    assert policy == Policy()
    assert render(findings, "text").split("\n")[0] == f"{POLICY}:{place}: error {message}"


def test_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / POLICY).symlink_to("/dev/zero")
    policy, (finding,) = read_policy(tmp_path)
    assert (policy, finding.rule.name) == (Policy(), "unreadable-document")


@pytest.mark.parametrize(
    ("aiter", "served"),
    [("e4048607a5", True), ("e4048607a5" + "0" * 30, True), ("e4048607", True), ("e4048607a6", False), ("", False)],
)
def test_commits_are_compared_as_far_as_both_are_told(aiter: str, served: bool) -> None:
    assert Policy(aiter_commits=("e4048607a5", "1" * 40)).serves(aiter) is served
    assert Policy().serves(aiter)
