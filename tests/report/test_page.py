from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.coverage import Coverage
from moeshapes.report.evidence import Evidence
from moeshapes.report.links import Links
from moeshapes.report.page import embedded, render_page
from moeshapes.report.page_data import page_data
from moeshapes.report.proof import Proof, proofs_of
from moeshapes.repository import load_declarations
from moeshapes.roofline import compute_time, drawn_experts, expected_experts, read_time
from moeshapes.row import UntunedRow
from report_page_samples import large_page
from small_repository import portable_row, tuned_row, write_small_repository

LINKS = Links("https://e.example/{commit}/{file}#L{line}", "abc")


@pytest.fixture(scope="module")
def large(root: Path) -> tuple[list[Proof], list[Coverage]]:
    return large_page(root, 3000)


def test_rows_of_both_backends_have_charts_of_their_own(tmp_path: Path) -> None:
    """The same key, of a GPU that both kinds of kernels run on."""
    rows = [tuned_row(8), portable_row(8, gfx="gfx950", cu_num="256")]
    assert rows[0].key == rows[1].key
    declared, _ = load_declarations(write_small_repository(tmp_path))
    shapes = page_data(proofs_of(rows, declared, Evidence(tmp_path)), [])["shapes"]
    assert sorted(shape["kind"] for shape in shapes) == ["a4w4 silu", "portable a4w4 silu"]


@pytest.fixture(scope="module")
def page(large: tuple[list[Proof], list[Coverage]]) -> str:
    return render_page(*large, LINKS, "Made by a test")


class Elements(HTMLParser):
    """What a browser would see, by the rules of HTML for script elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags = Counter[str]()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._open = tag
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in self.texts:
            self.texts[self._open][-1] += data

    def data(self) -> Any:
        return json.loads(self.texts["script"][0])


def test_the_page_is_one_file_that_asks_for_no_other(page: str) -> None:
    seen = Elements(page)
    assert not {"link", "img", "iframe", "object", "embed"} & set(seen.tags)
    assert not [
        found for found in seen.attributes if found[1] in ("src", "srcset", "style") or found[1].startswith("on")
    ]
    assert all(value and value.startswith("#") for _, name, value in seen.attributes if name == "href")
    assert not re.search(r"@import|url\(", seen.texts["style"][0])
    assert not re.search(
        r"\b(fetch|XMLHttpRequest|innerHTML|outerHTML|insertAdjacentHTML|eval|document\.write)\b", page
    )


def test_only_the_pages_own_script_and_style_may_run(page: str) -> None:
    seen = Elements(page)
    (policy,) = [
        value or "" for tag, name, value in seen.attributes if tag == "meta" and "default-src" in (value or "")
    ]
    assert "default-src 'none'" in policy
    for text, directive in ((seen.texts["style"][0], "style-src"), (seen.texts["script"][1], "script-src")):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def test_three_thousand_rows_stay_under_two_megabytes(page: str) -> None:
    assert sum(len(shape["rows"]) for shape in Elements(page).data()["shapes"]) == 3000
    assert len(page.encode()) < 2_000_000


def test_every_part_is_named_for_a_screen_reader(page: str) -> None:
    seen = Elements(page)
    names = {value for _, name, value in seen.attributes if name == "id"}
    referred = {value for _, name, value in seen.attributes if name in ("aria-labelledby", "aria-describedby")}
    assert referred <= names
    assert ("html", "lang", "en") in seen.attributes
    assert seen.tags["label"] == seen.tags["select"] == 4
    assert seen.tags["main"] == seen.tags["h1"] == 1


def test_a_row_has_its_facts(large: tuple[list[Proof], list[Coverage]]) -> None:
    data = page_data(*large)
    proof, timed = next((proof, proof.speed) for proof in large[0] if proof.speed)
    by_place = {(data["names"][row["f"]], row["l"]): row for shape in data["shapes"] for row in shape["rows"]}
    row = by_place[proof.row.place.file, proof.row.place.line]
    assert [data["names"][kernel] for kernel in row["k"]] == [proof.row.kernel1, proof.row.kernel2]
    assert row["t"] == proof.row.key.shape.token
    (told,) = row["p"]
    assert (told["s"], told["nan"], told["det"], told["v"]) == ("proven", 0, 1, proof.verdict)
    against, verdict, _, change, passes = told["c"][0]
    assert (against, verdict, len(passes)) == ("baseline", timed.comparisons[0].verdict, 2)
    assert change[0] == pytest.approx(100 * timed.comparisons[0].change.centre, rel=1e-3)


def test_the_roofline_is_the_larger_of_reading_and_computing(large: tuple[list[Proof], list[Coverage]]) -> None:
    data = page_data(*large)
    key = large[0][0].row.key
    (shape,) = [
        shape
        for shape in data["shapes"]
        if any(data["names"][r["f"]] == large[0][0].row.place.file and r["l"] == 2 for r in shape["rows"])
    ]
    for index in (0, 15):
        at = replace(key, shape=replace(key.shape, token=data["buckets"][index]))
        read, compute = read_time(at, expected_experts(at.shape)), compute_time(at)
        assert shape["roof"][index] == pytest.approx(max(read or 0, compute or 0), rel=1e-3)


def test_a_devices_unknown_peaks_give_no_roofline(large: tuple[list[Proof], list[Coverage]]) -> None:
    row = large[0][0].row
    unknown = replace(large[0][0], row=replace(row, key=replace(row.key, gfx="gfx999")))
    (shape,) = page_data([unknown], [])["shapes"]
    assert set(shape["roof"]) == {None}


@pytest.mark.parametrize(
    "spoil", [lambda shape: replace(shape, q_dtype_a="torch.f3"), lambda shape: replace(shape, q_dtype_w="torch.f3")]
)
def test_half_a_roofline_is_none(
    large: tuple[list[Proof], list[Coverage]], spoil: Callable[[UntunedRow], UntunedRow]
) -> None:
    """Only the time to read is known, or only that to compute."""
    key = large[0][0].row.key
    strange = replace(key, shape=spoil(key.shape))
    assert (read_time(strange, 1) is None) != (compute_time(strange) is None)
    (shape,) = page_data([replace(large[0][0], row=replace(large[0][0].row, key=strange))], [])["shapes"]
    assert set(shape["roof"]) == {None}


def test_portable_kernels_read_what_the_verifiers_routing_hits(tmp_path: Path) -> None:
    """Under the use that has more shared experts, which hits fewer."""
    row = portable_row(64, expert="65", topk="3", q_dtype_a="torch.float8_e4m3fn")
    declared, _ = load_declarations(write_small_repository(tmp_path))
    (proof,) = proofs_of([row], declared, Evidence(tmp_path))
    proofs = [replace(proof, use=replace(proof.use, shared_experts=shared)) for shared in (0, 2)]
    data = page_data(proofs, [])
    at = data["buckets"].index(64)
    hit = [drawn_experts(row.key.shape, shared) for shared in (0, 2)]
    assert hit[1] < hit[0] < expected_experts(row.key.shape)
    assert data["shapes"][0]["roof"][at] == pytest.approx(read_time(row.key, hit[1]), rel=1e-3)


def test_cells_refer_to_rows_and_deployments_to_shapes(large: tuple[list[Proof], list[Coverage]]) -> None:
    data = page_data(*large)
    for coverage, deployment in zip(large[1], data["deployments"], strict=True):
        assert deployment["tp"] == coverage.deployment.shape.tp
        for cell, told in zip(coverage.cells, deployment["cells"], strict=True):
            assert told[0] == cell.status.value
            assert data["names"][told[1]] == cell.note
            if cell.row:
                row = data["shapes"][told[3]]["rows"][told[4]]
                assert (data["names"][row["f"]], row["l"]) == (cell.row.place.file, cell.row.place.line)
    assert any(deployment["shape"] is not None for deployment in data["deployments"])


BAD = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: replace(p, row=replace(p.row, kernel1=BAD)),
        lambda p: replace(p, row=replace(p.row, tag=BAD)),
        lambda p: replace(p, row=replace(p.row, place=replace(p.row.place, file=BAD))),
        lambda p: replace(p, use=replace(p.use, deployment=BAD)),
        lambda p: replace(p, row=replace(p.row, key=replace(p.row.key, gfx=BAD))),
    ],
)
def test_names_from_a_pull_request_are_no_markup(
    large: tuple[list[Proof], list[Coverage]], spoil: Callable[[Proof], Proof]
) -> None:
    clean = Elements(render_page(large[0][:9], large[1][:2], Links(), "Made"))
    text = render_page([*large[0][:8], spoil(large[0][8])], large[1][:2], Links(), "Made")
    seen = Elements(text)
    assert seen.tags == clean.tags
    assert BAD in json.dumps(seen.data(), ensure_ascii=False)


def test_what_it_was_made_of_is_no_markup(large: tuple[list[Proof], list[Coverage]]) -> None:
    assert BAD not in render_page([], [], Links(), BAD)


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Co", "Zl", "Zp"])))
def test_any_text_survives_embedding(text: str) -> None:
    """And no terminal or editor that shows the page obeys it."""
    written = str(embedded({"a": text}))
    assert re.fullmatch("[ -~]+", written)
    assert not re.search("[<>&]", written)
    assert json.loads(written) == {"a": text}


def test_an_empty_repository_has_a_page() -> None:
    data = Elements(render_page([], [], Links(), "Made")).data()
    assert (data["shapes"], data["deployments"], data["link"]) == ([], [], "")
