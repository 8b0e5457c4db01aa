"""Both reports of this repository's own records, held to what its tables and the records' files say."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from branches import git
from moeshapes.record import RECORDS
from own_records import HAS_RECORDS, LINK, ROOT, Rows, all_rows, own_repository, place_of, portable_rows
from process import run_moeshapes

URL = re.compile(r"""(?:https?:)?//[A-Za-z][^\s"'<>`)]*""")
NAMESPACES = {"http://www.w3.org/2000/svg"}
"""Names that look like URLs and that nothing is fetched by."""
pytestmark = pytest.mark.skipif(not HAS_RECORDS, reason="this checkout has no records")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_repository(tmp_path_factory.mktemp("own") / "repository")


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    found = [json.loads(path.read_bytes()) for path in sorted((ROOT / RECORDS).rglob("*.json"))]
    assert found
    return found


@pytest.fixture(scope="module")
def portable() -> Rows:
    return portable_rows()


@pytest.fixture(scope="module")
def markdown(repository: Path) -> str:
    done = run_moeshapes("report", "--base", "main", "--link", LINK, cwd=repository)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    path = repository / "page.html"
    done = run_moeshapes("report", "--format", "html", "--link", LINK, "--output", str(path), cwd=repository)
    assert (done.returncode, done.stderr) == (0, "")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    return found


def devices(records: list[dict[str, Any]]) -> set[str]:
    found = (record["device"] for record in records)
    return {f"{device['board']} {device['gfx']}/{device['cu_num']}" for device in found}


def test_the_markdown_has_every_row_once(
    markdown: str, portable: Rows, repository: Path, records: list[dict[str, Any]]
) -> None:
    assert f"**{len(portable)} rows new; " in markdown
    table = markdown.partition("**Rows**")[2].partition("<details>")[0]
    lines = [line for line in table.splitlines() if "<a href" in line]
    shown = {}
    for line in lines:
        ((url, token),) = re.findall(r'<a href="([^"]+)">(\d+)</a>', line)
        shown[place_of(url, repository)] = token
        assert any(line.endswith(f"| {device} |") for device in devices(records))
    assert len(lines) == len(shown)
    assert shown == {place: cells["token"] for place, cells in portable.items()}


def test_the_markdown_says_how_the_records_came_about(markdown: str, records: list[dict[str, Any]]) -> None:
    told = markdown.partition("How it was measured")[2]
    for record in records:
        assert f"numerics protocol {record['numerics']['protocol']}, seed {record['seed']}" in told
        assert record["speed"] is None or f"timing protocol {record['speed']['protocol']}" in told
        assert f"verifier {record['versions']['verifier']}" in told
        assert f"driver {record['device']['driver']}" in told
    counts = [int(count) for count in re.findall(r"(?m)^- (\d+) records?: ", told)]
    ways = {json.dumps([record[name] for name in ("versions", "device", "seed")]) for record in records}
    assert (sum(counts), len(counts)) == (len(records), len(ways))


def test_every_link_of_the_markdown_leads_to_a_row(markdown: str, portable: Rows, repository: Path) -> None:
    urls = re.findall(r'href="([^"]+)"', markdown)
    assert {place_of(url, repository) for url in urls} == set(portable)
    assert set(URL.findall(markdown)) == set(urls)


def test_the_page_has_every_row_with_its_record(
    data: dict[str, Any], portable: Rows, records: list[dict[str, Any]]
) -> None:
    rows = {
        (data["names"][row["f"]], row["l"]): (shape["gpu"], row) for shape in data["shapes"] for row in shape["rows"]
    }
    assert set(rows) == set(all_rows())
    for place, cells in portable.items():
        gpu, row = rows[place]
        assert (gpu, row["t"]) == (f"{cells['gfx']}/{cells['cu_num']}", int(cells["token"]))
        assert row["u"] == pytest.approx(float(cells["us"]), rel=1e-3)
        assert {data["names"][proof["d"]] for proof in row["p"]} <= devices(records)
    statuses = sorted(proof["s"] for _, row in rows.values() for proof in row.get("p", ()))
    assert statuses == sorted(record["status"] for record in records)


def test_no_time_on_the_page_is_below_its_roofline(data: dict[str, Any]) -> None:
    """Of the one GPU that was measured, whose peaks are known."""
    for shape in data["shapes"]:
        roof = dict(zip(data["buckets"], shape["roof"], strict=True))
        for row in shape["rows"]:
            assert 0 < roof[row["t"]] < row["u"], (shape["dims"], row["t"])


class _Attributes(HTMLParser):
    """What a browser would follow or load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [(name, value or "") for name, value in attributes if name in ("href", "src", "action")]


def test_the_page_names_no_address_but_that_of_its_rows(page: str, data: dict[str, Any], repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD").strip()
    assert data["link"] == LINK.replace("{commit}", head)
    assert set(URL.findall(page)) - NAMESPACES == {data["link"]}
    assert _Attributes(page).found == [("href", "#shapes-title")]
