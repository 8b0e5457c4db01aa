"""`moeshapes doctor`: an account and a status, whatever the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from machines import MI355X, bare, ready
from moeshapes.cli import status_of
from moeshapes.commands import doctor
from moeshapes.doctor.machine import Machine
from moeshapes.doctor.trial import Trial
from process import run_moeshapes


def on(monkeypatch: pytest.MonkeyPatch, machine: Machine, tried: Trial | None = None) -> None:
    monkeypatch.setattr(doctor, "look", lambda: machine)
    monkeypatch.setattr(doctor, "try_aiter", lambda gpu: tried if tried else pytest.fail("tried"))


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine has an AMD GPU")
def test_a_machine_without_rocm_gets_a_clear_account(tmp_path: Path) -> None:
    done = run_moeshapes("doctor", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    assert "driver  no amdgpu driver is loaded\n          fix: install AMD's driver (https://rocm.docs" in done.stdout
    assert "AITER   AITER is not installed\n          fix: git clone --recursive" in done.stdout
    assert "\nproduction: cannot run here: see driver, device, GPU, ROCm, torch" in done.stdout


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine has an AMD GPU")
def test_the_account_is_json_on_request(tmp_path: Path) -> None:
    done = run_moeshapes("doctor", "--format", "json", cwd=tmp_path)
    assert done.returncode == 2
    account = json.loads(done.stdout)
    assert {check["name"]: bool(check["wrong"]) for check in account["checks"]}["driver"]
    assert account["backends"]["production"]
    assert account["trial"] is None


def test_a_machine_on_which_aiter_runs_has_status_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on(monkeypatch, ready(), Trial(MI355X.kind, ("moe_ck2stages_gemm1",)))
    assert status_of(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "GPU 0: AMD Instinct MI355X: gfx950, 256 CUs\n" in shown
    assert "production: can run here\ntrial on gfx950/256: passed\n  ran moe_ck2stages_gemm1\n" in shown


def test_a_trial_that_fails_has_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    on(monkeypatch, ready(), Trial(MI355X.kind, wrong="a kernel\x1b[31m hung"))
    assert status_of(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "trial on gfx950/256: failed: a kernel\\x1b[31m hung" in shown


def test_no_trial_is_run_where_none_is_wanted_or_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, ready())
    assert status_of(["doctor", "--no-trial"]) == 0
    on(monkeypatch, bare())
    assert status_of(["doctor"]) == 2


def test_json_has_the_trial(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    on(monkeypatch, ready(), Trial(MI355X.kind, ("ck",)))
    assert status_of(["doctor", "--format", "json"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert account["trial"] == {"gpu": "gfx950/256", "launched": ["ck"], "wrong": ""}
    assert account["cards"][0]["board"] == "AMD Instinct MI355X"
    assert account["torch_gpus"][0]["aiter"] == "e4048607a5"
