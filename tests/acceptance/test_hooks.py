"""The hooks as another repository uses them: installed by pre-commit into an environment of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from branches import git
from checkout import copy_checkout

pytest.importorskip("pre_commit", reason="the dev extra has pre-commit")

HEADER = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,"
    "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw"
)
SHAPE = (
    "ActivationType.Silu,torch.bfloat16,torch.float4_e2m1fn_x2,torch.float4_e2m1fn_x2,QuantType.per_1x32,1,0,"
    "32,0,10.5,moe1_a,0.0%,7.5,moe2_a,0.0%,18.0,0,1.0,1.0"
)


def tuned_table(*tokens: int) -> str:
    return "".join(f"{line}\n" for line in (HEADER, *(f"256,{token},6144,512,257,9,{SHAPE}" for token in tokens)))


def commit_all(directory: Path) -> Path:
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "as it is")
    return directory


@pytest.fixture
def aiter_checkout(tmp_path: Path) -> Path:
    """A repository laid out as AITER, its tables without a fault."""
    configs = tmp_path / "aiter-like" / "aiter" / "configs"
    (configs / "model_configs").mkdir(parents=True)
    (configs / "tuned_fmoe.csv").write_text(tuned_table(1, 2))
    (configs / "model_configs" / "some_model_tuned_fmoe.csv").write_text(tuned_table(4, 8))
    return commit_all(tmp_path / "aiter-like")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory, can_install: None) -> Path:
    """This repository's hooks as a repository that pre-commit can clone."""
    return commit_all(copy_checkout(tmp_path_factory.mktemp("hooks") / "moeshapes"))


@pytest.fixture(scope="module")
def pre_commit_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pre-commit keeps the environment that it installs once, for all tests."""
    return tmp_path_factory.mktemp("pre-commit")


CONFIG = """\
repos:
  - repo: {repository}
    rev: {commit}
    hooks: [{{id: {hook}}}]
"""


def run_hook(hook: str, hooks: Path, directory: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "GIT_DIR")}
    commit = git(hooks, "rev-parse", "HEAD").strip()
    config = home / f"{hook}.yaml"
    config.write_text(CONFIG.format(repository=hooks, commit=commit, hook=hook))
    command = [sys.executable, "-m", "pre_commit", "run", hook, "--config", str(config), "--all-files", "--verbose"]
    return subprocess.run(
        command,
        cwd=directory,
        env={**environment, "PRE_COMMIT_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.registry
def test_a_collision_in_an_aiter_checkout_is_found(hooks: Path, aiter_checkout: Path, pre_commit_home: Path) -> None:
    clean = run_hook("moeshapes-keys", hooks, aiter_checkout, pre_commit_home)
    assert clean.returncode == 0, clean.stdout
    assert "4 tuned rows in 2 tables" in clean.stdout

    shutil.copy(
        aiter_checkout / "aiter/configs/tuned_fmoe.csv",
        aiter_checkout / "aiter/configs/model_configs/other_model_tuned_fmoe.csv",
    )
    git(aiter_checkout, "add", "--all")
    planted = run_hook("moeshapes-keys", hooks, aiter_checkout, pre_commit_home)
    assert planted.returncode == 1, planted.stdout
    assert "aiter/configs/model_configs/other_model_tuned_fmoe.csv:2: error MOE201" in planted.stdout


@pytest.mark.registry
def test_a_row_recorded_at_no_time_is_found(hooks: Path, aiter_checkout: Path, pre_commit_home: Path) -> None:
    table = aiter_checkout / "aiter/configs/model_configs/some_model_tuned_fmoe.csv"
    table.write_text(table.read_text().replace(",18.0,", ",0.0,"))
    git(aiter_checkout, "add", "--all")
    done = run_hook("moeshapes-lint", hooks, aiter_checkout, pre_commit_home)
    assert done.returncode == 1, done.stdout
    faulty = set(re.findall(r"^(\S+?):(\d+)\S*: error (\S+)", done.stdout, re.MULTILINE))
    name = "aiter/configs/model_configs/some_model_tuned_fmoe.csv"
    assert faulty == {(name, "2", "MOE120"), (name, "3", "MOE120")}


@pytest.mark.registry
def test_a_repository_of_shapes_is_checked(hooks: Path, root: Path, tmp_path: Path, pre_commit_home: Path) -> None:
    shapes = tmp_path / "our-shapes"
    for folder in ("models", "shapes", "generated"):
        shutil.copytree(root / folder, shapes / folder)
    commit_all(shapes)
    clean = run_hook("moeshapes-check", hooks, shapes, pre_commit_home)
    assert clean.returncode == 0, clean.stdout

    model = shapes / "models" / "glm-5.2.yaml"
    model.write_text(model.read_text().replace("hidden_size:", "hiden_size:", 1))
    git(shapes, "add", "--all")
    planted = run_hook("moeshapes-check", hooks, shapes, pre_commit_home)
    assert planted.returncode == 1, planted.stdout
    assert "models/glm-5.2.yaml:" in planted.stdout


@pytest.mark.parametrize(
    ("validate", "file"),
    [("validate-config", ".pre-commit-config.yaml"), ("validate-manifest", ".pre-commit-hooks.yaml")],
)
def test_pre_commit_accepts_our_files(root: Path, validate: str, file: str) -> None:
    command = [sys.executable, "-m", "pre_commit", validate, str(root / file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
