"""The page as people use it: by mouse, keyboard and screen reader, wide and narrow, in the light and in the dark."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moeshapes.claim import judged_uses
from moeshapes.report.links import Links
from moeshapes.report.page import render_page
from moeshapes.report.proof import Proof
from moeshapes.repository import load_declarations
from own_records import HAS_RECORDS, LINK, all_rows, own_repository, place_of
from process import run_moeshapes
from report_page_samples import large_page
from report_samples import FASTER, MI355X, record, speed
from small_repository import tuned_row, write_small_repository

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: the page is not clicked through"
)

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("MOESHAPES_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(not BROWSER, reason=f"none of {', '.join(NAMES)} is installed: the page is not opened")

TIME_A_FILTER = """([name, value]) => {
    const select = document.getElementById("filters").elements[name];
    const start = performance.now();
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    document.body.getBoundingClientRect();
    return performance.now() - start;
}"""


@pytest.fixture(scope="module")
def files(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two pages of three thousand rows: with links to elsewhere, and without."""
    proofs, coverages = large_page(root, 3000)
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, template in (("linked", "https://e.example/{commit}/{file}#L{line}"), ("plain", "")):
        found[name] = folder / f"{name}.html"
        found[name].write_text(render_page(proofs, coverages, Links(template, "abc"), "Made"), encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Opened:
    """A page that was opened, and all that it complained of or asked for."""

    def __init__(self, browser: Any, file: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on(
            "request", lambda request: self.troubles.append(request.url) if "file:" not in request.url else None
        )
        self.page.goto(file.as_uri())

    def shown(self) -> list[int]:
        """Deployments, shapes and rows that the page says it shows."""
        said = self.page.locator("#shown").inner_text()
        match = re.fullmatch(r"Showing (\d+) of \d+ deployments, (\d+) of \d+ shapes, (\d+) rows\.", said)
        assert match, said
        return [int(number) for number in match.groups()]

    def focused(self) -> str:
        return str(self.page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.id"))


@pytest.fixture
def plain(browser: Any, files: dict[str, Path]) -> Iterator[Opened]:
    opened = Opened(browser, files["plain"])
    yield opened
    opened.context.close()
    assert opened.troubles == []


@pytest.fixture
def linked(browser: Any, files: dict[str, Path]) -> Iterator[Opened]:
    opened = Opened(browser, files["linked"])
    yield opened
    opened.context.close()
    assert opened.troubles == []


def test_filters_narrow_what_is_shown(plain: Opened) -> None:
    all_of_it = plain.shown()
    assert all_of_it[2] == 3000
    plain.page.get_by_role("combobox", name="Model").select_option("glm-5.2")
    few = plain.shown()
    assert 0 < few[0] < all_of_it[0]
    headers = plain.page.locator("#coverage tbody tr:visible th").all_inner_texts()
    assert len(headers) == few[0]
    assert all(header.startswith("glm-5.2/") for header in headers)
    plain.page.get_by_role("combobox", name="TP").select_option("4")
    assert plain.shown()[0] == 1
    plain.page.get_by_role("button", name="Show all").click()
    sync_api.expect(plain.page.locator("#shown")).to_contain_text(f"Showing {all_of_it[0]} of")
    assert plain.shown() == all_of_it


def test_only_what_occurs_can_be_filtered_by(plain: Opened) -> None:
    offered = plain.page.locator("select[name=status] option").all_inner_texts()
    assert offered == [
        *("all", "exact", "tier fallback", "not asked for", "fail", "no record", "proven"),
        *("faster", "same", "slower"),
    ]


@pytest.mark.parametrize("status", ["fail", "no record", "proven", "faster", "slower", "same"])
def test_rows_are_filtered_by_what_is_known_of_them(plain: Opened, status: str) -> None:
    plain.page.get_by_role("combobox", name="Status").select_option(status)
    _, shapes, rows = plain.shown()
    assert 0 < rows < 3000
    assert shapes == plain.page.locator("#shapes details:visible").count()
    plain.page.locator("#shapes details:visible > summary").first.click()
    plain.page.locator("#shapes details:visible > summary").nth(1).click()
    assert all(status in text for text in plain.page.locator(".rows tbody tr:visible").all_inner_texts())


def test_a_filter_answers_within_a_tenth_of_a_second(plain: Opened) -> None:
    """With every shape open, by the best of three rounds: a busy machine is no slow page."""
    plain.page.get_by_role("button", name="Open all that are shown").click()
    sync_api.expect(plain.page.locator("#shapes table.rows")).to_have_count(plain.shown()[1])
    filters = [
        ("model", "glm-5.2"),
        ("model", ""),
        ("status", "fail"),
        ("status", ""),
        ("gpu", "gfx950/256"),
        ("gpu", ""),
    ]
    rounds = [[plain.page.evaluate(TIME_A_FILTER, each) for each in filters] for _ in range(3)]
    assert max(min(times) for times in zip(*rounds, strict=True)) < 100


def test_everything_can_be_opened_and_closed(plain: Opened) -> None:
    plain.page.get_by_role("combobox", name="Model").select_option("glm-5.2")
    plain.page.get_by_role("button", name="Open all that are shown").click()
    shapes = plain.shown()[1]
    sync_api.expect(plain.page.locator("#shapes details[open]:visible table.rows")).to_have_count(shapes)
    assert plain.page.locator("#shapes details[open]:visible svg[role=group]").count() >= shapes
    plain.page.get_by_role("button", name="Close all").click()
    assert plain.page.locator("#shapes details[open]:visible").count() == 0


def test_the_keyboard_reaches_a_row_through_the_coverage(plain: Opened) -> None:
    page = plain.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the shapes"
    for _ in range(7):
        page.keyboard.press("Tab")
    first = plain.focused()
    assert re.search(r", 1 tokens: row, ", first), first
    page.keyboard.press("ArrowRight")
    assert ", 2 tokens: " in plain.focused()
    page.keyboard.press("ArrowDown")
    below = plain.focused()
    assert below != first
    assert ", 2 tokens: " in below
    page.keyboard.press("End")
    assert ", 131072 tokens: " in plain.focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    assert plain.focused() == first
    assert page.locator("#said").inner_text() == first
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("tr:focus")).to_have_count(1)
    assert page.evaluate("document.activeElement.closest('details').open")
    assert page.evaluate("document.activeElement.innerText").split()[-1] in first


def test_marks_of_a_chart_are_one_stop_and_arrows_move_among_them(plain: Opened) -> None:
    chart = plain.page.locator("#shapes svg[role=group]").first
    marks = chart.locator("a")
    assert chart.locator("a[tabindex='0']").count() == 1
    marks.first.focus()
    labels = [mark.get_attribute("aria-label") for mark in marks.all()]
    assert all(re.match(r"\d+ tokens, .+: [\d.]+ µs, generated/.+\.csv:\d+$", label or "") for label in labels)
    plain.page.keyboard.press("ArrowRight")
    assert plain.focused() == labels[1]
    plain.page.keyboard.press("End")
    assert plain.focused() == labels[-1]
    assert chart.locator("a[tabindex='0']").count() == 1


def test_a_screen_reader_is_told_what_stands_where(plain: Opened) -> None:
    page = plain.page
    assert page.get_by_role("grid", name="Coverage").get_by_role("columnheader").count() == 18
    assert page.get_by_role("rowheader").first.inner_text().startswith("deepseek-v3/")
    name = page.get_by_role("table").first.locator("caption").inner_text()
    assert re.match(r"Rows of \d+/\d+/\d+/\d+ .+ on gfx", name)
    about = page.locator("#shapes svg[role=group]").first.get_attribute("aria-label")
    assert about.startswith("Microseconds against tokens, both logarithmic. recorded: ")
    for region in page.get_by_role("region").all():
        assert region.get_attribute("aria-labelledby") or region.get_attribute("aria-label")


def test_marks_link_to_their_rows_file_and_line(linked: Opened) -> None:
    links = [
        linked.page.locator("#coverage td a").first,
        linked.page.locator("#shapes svg a").first,
        linked.page.locator(".rows td a").first,
    ]
    for link in links:
        assert re.fullmatch(r"https://e\.example/abc/generated/.+\.csv#L\d+", link.get_attribute("href"))
    label = links[0].get_attribute("aria-label")
    file, line = re.search(r"([^ ]+\.csv):(\d+)$", label).groups()  # type: ignore[union-attr]
    assert links[0].get_attribute("href") == f"https://e.example/abc/{file}#L{line}"


@pytest.mark.skipif(not HAS_RECORDS, reason="this checkout has no records")
def test_every_mark_of_our_own_rows_leads_to_its_row(browser: Any, tmp_path: Path) -> None:
    """Each cell of the map and each point of the charts, by its label; and the browser asks for nothing."""
    root = own_repository(tmp_path / "repository")
    run_moeshapes("report", "--format", "html", "--link", LINK, "--output", "page.html", cwd=root)
    opened = Opened(browser, root / "page.html")
    opened.page.get_by_role("button", name="Open all that are shown").click()
    sync_api.expect(opened.page.locator("#shapes table.rows")).to_have_count(opened.shown()[1])
    marks = opened.page.locator("#coverage td a, #shapes svg[role=group] a").evaluate_all(
        "links => links.map((link) => [link.getAttribute('aria-label'), link.getAttribute('href')])"
    )
    places = [place_of(url, root) for _, url in marks]
    assert all(label.endswith(f" {file}:{line}") for (label, _), (file, line) in zip(marks, places, strict=True))
    assert set(places) == set(all_rows())
    assert opened.page.locator("#shapes svg[role=group] path.roof[d^=M]").count() == opened.shown()[1]
    assert opened.troubles == []
    opened.context.close()


@pytest.mark.parametrize("width", [360, 390, 768, 1920])
def test_nothing_but_tables_scrolls_sideways(browser: Any, files: dict[str, Path], width: int) -> None:
    opened = Opened(browser, files["plain"], width)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    chart = opened.page.locator("#shapes svg[role=group]").first.bounding_box()
    assert chart["width"] <= width
    assert opened.troubles == []
    opened.context.close()


def test_the_dark_is_dark(browser: Any, files: dict[str, Path]) -> None:
    backs = []
    for scheme in ("light", "dark"):
        opened = Opened(browser, files["plain"], scheme=scheme)
        backs.append(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        opened.context.close()
    assert backs == ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]


@pytest.fixture
def lone(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """A page of one row, proven on a board whose name turns text around, and emulated on a CPU."""
    row = tuned_row(8)
    declarations, _ = load_declarations(write_small_repository(tmp_path))
    (use,) = judged_uses(row, declarations)
    told = record(row, use, speed(FASTER, row.us)) | {"device": MI355X | {"board": "a\u202eb\x9b2J<b>"}}
    emulated = told | {"status": "emulated", "backend": "emulate", "device": told["device"] | {"kind": "cpu"}}
    text = render_page([Proof(row, use, True, each) for each in (told, emulated)], [], Links(), "Made")
    (tmp_path / "lone.html").write_text(text, encoding="utf-8")
    opened = Opened(browser, tmp_path / "lone.html")
    yield opened
    opened.context.close()
    assert opened.troubles == []


def test_what_cannot_be_seen_is_shown_as_an_escape(lone: Opened) -> None:
    status = lone.page.locator(".rows tbody td.said").nth(1).inner_text()
    assert status.startswith("proven on a\\u{202e}b\\u{9b}2J<b> gfx950/256 under tiny/tp2")
    assert re.search("; emulated on a CPU under tiny/tp2[^;]*$", status)


def test_a_lone_row_has_a_roofline_and_labels(lone: Opened) -> None:
    chart = lone.page.locator("#shapes svg[role=group]").first
    assert re.fullmatch(r"M[\d.]+ [\d.]+(L[\d.]+ [\d.]+){2}", chart.locator("path.roof").get_attribute("d"))
    beside, below = (chart.locator(f"> text[text-anchor={side}]").all_text_contents() for side in ("end", "middle"))
    assert below == ["4", "8", "16", "tokens"]
    assert beside[0] == "µs"
    assert len([float(label) for label in beside[1:]]) >= 2


def test_what_was_recorded_is_seen_behind_what_was_measured(lone: Opened) -> None:
    chart = lone.page.locator("#shapes svg[role=group]").first
    sizes = [chart.locator(f"circle.{name}").bounding_box()["width"] for name in ("recorded", "tuned")]
    assert sizes[0] > sizes[1] + 2


def test_every_mark_of_the_legend_is_a_box(plain: Opened) -> None:
    boxes = [box.bounding_box() for box in plain.page.locator("#legend li span").all()]
    assert all(box["height"] > 15 and box["width"] > 20 for box in boxes)
