from __future__ import annotations

from pathlib import Path

import pytest

from branches import MODELS, A, git, repository
from moeshapes.git import Git, GitError, open_git
from table_text import line, text


@pytest.fixture
def opened(tmp_path: Path) -> Git:
    return open_git(repository(tmp_path, {A: [line()]}, other={A: [line(us="70")]}))


def test_files_are_read_and_nothing_is_checked_out(opened: Git) -> None:
    commit = opened.commit("other")
    files = opened.files(commit, ["generated", "absent"])
    assert list(files) == [A]
    content = text(line(us="70"))
    assert files[A].size == len(content)
    assert opened.contents([files[A].name] * 2) == {files[A].name: content}
    assert opened.contents([]) == {}
    assert (opened.directory / A).read_bytes() == text(line())
    assert git(opened.directory, "status", "--porcelain") == ""


def test_paths_are_below_the_directory_that_was_opened(opened: Git) -> None:
    below = open_git(opened.directory / "generated" / "aiter")
    (name,) = below.files(below.commit("main"), ["configs"])
    assert name == A.removeprefix("generated/aiter/")
    assert list(below.files(below.commit("main"), [name])) == [name]
    assert list(below.files(below.commit("main"), [name[:-1], "config"])) == []


def test_what_stands_in_the_place_of_a_folder(opened: Git) -> None:
    root = opened.directory
    (root / "link").symlink_to("generated")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a link")
    head = opened.commit("HEAD")
    found = {path: opened.nearest(head, path) for path in (A, f"{A}/x", "link", "link/x/y", "generated", "absent/x")}
    assert [entry and entry.path for entry in found.values()] == [A, A, "link", "link", None, None]
    assert [entry.is_file for entry in found.values() if entry] == [True, True, False, False]
    assert open_git(root / "generated").whole.nearest(head, A) == found[A]


def test_the_merge_base(opened: Git) -> None:
    main, other = opened.commit("main"), opened.commit("other")
    assert opened.merge_base(main, other) == main
    git(opened.directory, "checkout", "--quiet", "--orphan", "alone")
    git(opened.directory, "commit", "--quiet", "--message", "no parent")
    assert opened.merge_base(opened.commit("alone"), other) is None


@pytest.mark.parametrize("ref", ["main", "other", "HEAD", "refs/heads/other", "other~1", "main^{commit}"])
def test_names_of_commits(opened: Git, ref: str) -> None:
    assert len(opened.commit(ref)) == 40


@pytest.mark.parametrize(
    "ref",
    [
        *("", "-", "--all", "--upload-pack=touch pwned", "-n1", "--output=pwned", "--end-of-options"),
        *("absent", "main:models", "main..other", "^main", "ma in", "main\n", "main\x1b[2J", f"main:{MODELS}"),
    ],
)
def test_what_names_no_commit_is_refused_in_one_line(opened: Git, ref: str) -> None:
    with pytest.raises(GitError) as refused:
        opened.commit(ref)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)
    assert not (opened.directory / "pwned").exists()


def test_outside_of_a_repository(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not a git repository"):
        open_git(tmp_path)


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="git was not found"):
        open_git(tmp_path)


def test_a_hooks_environment_names_another_repository(opened: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert open_git(opened.directory).commit("main") == opened.commit("main")


def test_an_object_that_is_not_there(opened: Git) -> None:
    with pytest.raises(GitError, match="does not have the object"):
        opened.contents(["0" * 40])


def test_a_file_whose_object_is_lost(opened: Git) -> None:
    commit = opened.commit("other")
    name = opened.files(commit, ["generated"])[A].name
    (opened.directory / ".git" / "objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(GitError, match="does not have the object"):
        opened.files(commit, ["generated"])


def test_a_shallow_clone_that_lacks_the_merge_base(opened: Git, tmp_path_factory: pytest.TempPathFactory) -> None:
    git(opened.directory, "commit", "--quiet", "--allow-empty", "--message", "onward")
    clone = tmp_path_factory.mktemp("clone") / "shallow"
    git(opened.directory, "clone", "--quiet", "--depth=1", "--no-single-branch", opened.directory.as_uri(), str(clone))
    shallow = open_git(clone)
    with pytest.raises(GitError, match="shallow"):
        shallow.merge_base(shallow.commit("HEAD"), shallow.commit("origin/other"))


def test_what_the_working_tree_has_otherwise(opened: Git) -> None:
    commit = opened.commit("main")
    assert opened.changed(commit, ["generated", "models"]) == frozenset()
    assert opened.changed(opened.commit("other"), ["generated"]) == {A}
    (opened.directory / A).write_bytes(text(line(us="80")))
    (opened.directory / "models" / "é\n.yaml").write_text("new")
    (opened.directory / ".gitignore").write_text("ignored")
    (opened.directory / MODELS / "ignored").write_text("ignored")
    assert opened.changed(commit, ["generated", "models"]) == {A, "models/é\n.yaml", f"{MODELS}/ignored"}
    assert opened.changed(commit, ["models"]) == {"models/é\n.yaml"}
    (opened.directory / A).unlink()
    below = open_git(opened.directory / "generated" / "aiter")
    assert below.changed(commit, ["configs"]) == {
        A.removeprefix("generated/aiter/"),
        f"{MODELS}/ignored".removeprefix("generated/aiter/"),
    }


def test_comparing_runs_nothing_that_the_repository_names(opened: Git) -> None:
    pwned = opened.directory / "pwned"
    git(opened.directory, "config", "diff.external", f"touch {pwned}")
    git(opened.directory, "config", "diff.x.textconv", f"touch {pwned}")
    (opened.directory / ".gitattributes").write_text("* diff=x\n")
    (opened.directory / A).write_bytes(b"other")
    assert opened.changed(opened.commit("main"), ["generated"]) == {A}
    assert not pwned.exists()
