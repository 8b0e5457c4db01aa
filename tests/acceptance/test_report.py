"""`moeshapes report` as people and workflows run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from process import run_moeshapes, run_python
from report_samples import pull_request


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pull_request(tmp_path_factory.mktemp("repository"))


def test_a_pull_request_is_reported(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "summary.md"
    link = "https://e.example/{commit}/{file}#L{line}"
    done = run_moeshapes("report", "--base", "main", "--link", link, "--output", str(output), cwd=repository)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = output.read_text(encoding="utf-8")
    assert text.startswith("### moeshapes: tuned rows since ")
    assert "−12.0 % ± 0.24 faster" in text
    assert "tiny_tuned_fmoe.csv#L4" in text
    assert run_moeshapes("report", "--base", "main", "--link", link, cwd=repository).stdout == text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--base", "nowhere"), "no branch or commit 'nowhere'"),
        (("--base", "main", "--link", "javascript:{file}"), "a link begins with https://"),
        (("--base", "main", "--limit", "100"), "what is not cut needs 16384 bytes"),
        (("--limit", "100000"), "--limit is for what --base reports"),
        ((), "there is no build/verify.md yet"),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_line(repository: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run_moeshapes("report", *arguments, cwd=repository)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_base_install_is_told_what_to_install(repository: Path) -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None; from moeshapes.cli import status_of; "
        "sys.exit(status_of(['report', '--base', 'main']))"
    )
    done = run_python("-c", code, cwd=repository)
    assert done.returncode == 2
    assert "pip install 'moeshapes[report]'" in done.stderr


def test_the_last_verification_needs_no_extra(tmp_path: Path) -> None:
    for name in ("models", "shapes", "build"):
        (tmp_path / name).mkdir()
    (tmp_path / "build" / "verify.md").write_text("### moeshapes verify\n", encoding="utf-8")
    code = (
        "import sys; sys.modules['jinja2'] = sys.modules['markupsafe'] = None; "
        "from moeshapes.cli import status_of; sys.exit(status_of(['report']))"
    )
    done = run_python("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "### moeshapes verify\n")
