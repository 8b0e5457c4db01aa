"""Spaces of candidates: what ships is sound, and what is wrong with a file is shown where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeshapes.document import parse_document
from moeshapes.tune.space import read_space, space_of

EXAMPLES = Path(__file__).parent.parent / "examples" / "spaces"
GOOD = (EXAMPLES / "positive" / "three-tiers.yaml").read_bytes()


def test_what_ships_is_sound() -> None:
    space, findings = read_space()
    assert space
    assert not findings
    assert [space.tier_of(token).up_to for token in (1, 64, 128, 1024, 2048, 131072)] == [
        64,
        64,
        1024,
        1024,
        None,
        None,
    ]
    assert space.shared_memory("sm_90") == 227 * 1024
    assert space.shared_memory("sm_120") == 99 * 1024


@pytest.mark.parametrize("path", sorted((EXAMPLES / "positive").iterdir()), ids=lambda path: path.stem)
def test_a_good_space_has_no_findings(path: Path) -> None:
    space, findings = read_space(path)
    assert space
    assert not findings


@pytest.mark.parametrize("path", sorted((EXAMPLES / "negative").iterdir()), ids=lambda path: path.stem)
def test_a_bad_space_is_a_finding_at_its_line(path: Path) -> None:
    space, findings = read_space(path)
    assert space is None
    assert path.name[:6] in {found.rule.id for found in findings}
    assert all(found.place.line for found in findings)


def test_every_combination_of_a_stage_is_there() -> None:
    space, _ = read_space(EXAMPLES / "positive" / "one-tier.yaml")
    assert space
    (tier,) = space.tiers
    assert [(tile.n, tile.k, tile.stages, tile.end) for tile in tier.stage2] == [(128, 64, s, "reduce") for s in (2, 3)]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nothing_in_a_file_raises(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(GOOD)))
    junk = data.draw(
        st.sampled_from([b"", b"- ", b"{", b"[]", b"null", b": 1", b"\xff", b"up_to: x", b"\n", b"*a", b"9e9"])
    )
    document, _ = parse_document(GOOD[:at] + junk + GOOD[at + len(junk) :], "space.yaml")
    if document is not None:
        space, findings = space_of(document)
        assert (space is None) == bool(findings)
