from __future__ import annotations

import pytest

from moeshapes.findings import Place
from moeshapes.report.links import LinkError, Links

TEMPLATE = "https://github.com/o/r/blob/{commit}/{file}#L{line}"


def test_a_place_has_a_url() -> None:
    assert Links(TEMPLATE, "abc").of(Place("a/b c.csv", 3)) == "https://github.com/o/r/blob/abc/a/b%20c.csv#L3"


def test_a_file_cannot_leave_its_part_of_the_url() -> None:
    url = Links(TEMPLATE, "abc").of(Place('"><script>{line}#?.csv', 3))
    assert url == "https://github.com/o/r/blob/abc/%22%3E%3Cscript%3E%7Bline%7D%23%3F.csv#L3"


def test_a_name_that_is_not_utf_8_is_linked_byte_for_byte() -> None:
    assert Links(TEMPLATE, "abc").of(Place("\udcff.csv", 3)) == "https://github.com/o/r/blob/abc/%FF.csv#L3"


@pytest.mark.parametrize("file", ["/etc/passwd", "../x.csv"])
def test_what_is_outside_has_none(file: str) -> None:
    assert Links(TEMPLATE, "abc").of(Place(file, 1)) == ""


def test_without_a_template_there_are_none() -> None:
    assert Links().of(Place("a.csv", 1)) == ""


@pytest.mark.parametrize(
    "template",
    [
        "javascript:alert({file})",
        'https://e.example/{file}"onclick=',
        "https://e.example/{file}/{branch}",
        "https://e.example/{file.__class__}",
        "https://e.example/",
        "https://e.example/{file} x",
        "https://e.example/{file}{",
    ],
)
def test_other_templates_are_refused(template: str) -> None:
    with pytest.raises(LinkError):
        Links(template)
