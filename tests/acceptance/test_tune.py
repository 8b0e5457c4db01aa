"""`moeshapes tune` as people run it, beside a GPU whose times are made up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from answers import AnsweringPool
from gpus import gpu, local
from moeshapes.commands import tune as tune_command
from moeshapes.portable import default_launch
from moeshapes.recipe import RECIPES
from moeshapes.record import RECORDS
from moeshapes.row import TunedRow
from moeshapes.table import read_table, read_tuned_rows
from moeshapes.tune.budget import Budget
from moeshapes.verify import plan
from moeshapes.verify.gpus import NO_GPUS, Gpu
from moeshapes.verify.job import Job
from moeshapes.verify.pool import Pool
from process import run_moeshapes
from small_repository import PORTABLE_TABLE, write_both_backends
from tuning import SPACE, Lab, first, plain_us, second, write_tiny

SHAPE = "tiny/tp2-triton"
Tune = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """Runs the command where one H200 is, with a lab's answers."""
    monkeypatch.setattr(tune_command, "local_gpus", lambda: local(gpu(board="NVIDIA H200")))

    def run(lab: Lab, *arguments: str, what: str = SHAPE) -> subprocess.CompletedProcess[str]:
        def pool(gpus: Sequence[Gpu], limit_s: float) -> AnsweringPool:
            return AnsweringPool(lab.answer)

        monkeypatch.setattr(tune_command, "local_pool", pool)
        return run_moeshapes("tune", what, "--space", str(tmp_path / "space.yaml"), *arguments, cwd=tmp_path)

    return run


def rows(root: Path) -> dict[int, TunedRow]:
    path = root / PORTABLE_TABLE
    found = read_tuned_rows(read_table(path, PORTABLE_TABLE)) if path.exists() else []
    return {row.key.shape.token: row for row in found}


def pairs(root: Path) -> dict[int, tuple[str, str]]:
    return {token: (row.kernel1, row.kernel2) for token, row in rows(root).items()}


def records(root: Path) -> list[Path]:
    return sorted((root / RECORDS).rglob("*.json"))


FASTEST = first(64, 3), second(128, 3)
DEFAULT_SECOND = str(default_launch(RECIPES["a4w4"], 8)["kernelName2"])


def test_the_fastest_of_each_bucket_is_written_with_its_records(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    lab = Lab()
    done = tune(lab)
    assert done.returncode == 0, done.stdout + done.stderr
    fused = first(64, 3, "_fp4"), second(128, 3)
    assert {token: pair in (FASTEST, fused) for token, pair in pairs(tmp_path).items()} == {1: True, 8: True}
    assert len(records(tmp_path)) == 2
    assert "1 table and 2 records written" in done.stderr
    assert "Source: moeshapes tune, NVIDIA H200, torch " in done.stdout


def test_a_table_of_two_shapes_is_one(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    shape = tmp_path / f"shapes/{SHAPE}.yaml"
    (shape.parent / "tp4-triton.yaml").write_text(shape.read_text(encoding="utf-8").replace("tp: 2", "tp: 4"))
    done = tune(Lab(), what="triton_tiny_untuned_fmoe.csv")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(records(tmp_path)) == 4
    assert "1 table and 4 records written" in done.stderr


def test_times_are_the_records_and_throughput_follows_from_them(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    tune(Lab(looks_like={FASTEST[0]: 0.5}), "--tokens", "8")
    (row,) = rows(tmp_path).values()
    assert (row.kernel1, row.kernel2) == FASTEST
    us = round(sum(map(plain_us, FASTEST)), 4)
    assert (row.us, row.us1, row.us2) == (us, us, 0)
    assert float(row.tflops) == round(6 * 8 * 2 * 256 * 256 / us / 1e6, 2)


def test_a_sum_of_candidates_is_screened_and_not_their_product(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    lab = Lab()
    tune(lab, "--tokens", "1")
    assert len(lab.screened) == 8 + 4
    assert len(set(lab.screened)) == len(lab.screened)
    assert len(lab.verified) == 3


def test_what_does_not_run_is_not_verified(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    broken = {first(64, 3), first(64, 3, "_fp4")}
    lab = Lab(broken=frozenset(broken))
    done = tune(lab, "--tokens", "8")
    assert not broken & {one for one, *_ in lab.verified}
    assert pairs(tmp_path)[8] == (first(64, 2), second(128, 3))
    assert "not tried: 2 × OutOfResources: out of resource: shared memory" in done.stdout


def test_a_candidate_that_kills_its_worker_costs_no_other_one(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    done = tune(Lab(kills=frozenset({first(64, 3)})), "--tokens", "8")
    assert pairs(tmp_path)[8] == (first(64, 3, "_fp4"), second(128, 3))
    assert "not tried: 1 × the worker was killed by SIGSEGV" in done.stdout


def test_a_fast_candidate_that_lies_loses_to_the_next(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    liar = first(32, 2)
    lab = Lab(wrong=frozenset({liar}), looks_like={liar: 0.1})
    done = tune(lab, "--tokens", "8", "--top", "5")
    assert liar in {one for one, *_ in lab.verified}
    assert liar not in pairs(tmp_path)[8]
    assert "lost    " in done.stdout
    assert len(records(tmp_path)) == 1


def test_a_row_is_kept_only_if_it_is_right_under_every_use(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path, uses=2)
    lab = Lab(wrong=frozenset({first(64, 3)}), wrong_use="limited/")
    done = tune(lab, "--tokens", "8", "--top", "4")
    assert pairs(tmp_path)[8] == (first(64, 3, "_fp4"), second(128, 3))
    assert "fail under limited/tp2-triton#target" in done.stdout
    assert {use.partition("#")[0] for *_, use in lab.verified} == {"tiny/tp2-triton", "limited/tp2-triton"}
    assert len(records(tmp_path)) == 2


def test_where_nothing_is_faster_nothing_is_written_and_the_yaml_is_told(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    lab = Lab(us=lambda kernel: 6.0)
    done = tune(lab)
    assert done.returncode == 0
    assert not rows(tmp_path)
    assert not records(tmp_path)
    assert not lab.verified
    assert "shapes/tiny/tp2-triton.yaml:7" in done.stdout
    assert "MOE552 tiny/tp2-triton#target: no candidate is kept at [1, 8] tokens" in done.stdout
    assert "`- {tokens: [1, 8], reason: no candidate beat the default}`" in done.stdout


def write_denying(root: Path) -> Path:
    """The mode of the default's stage 2 is denied, and the space has another one alone."""
    shape = root / f"shapes/{SHAPE}.yaml"
    deny = "kernels:\n  deny:\n    - {match: {family: triton_moe2, mode: atomic}, reason: sums differ}\n"
    shape.write_text(shape.read_text(encoding="utf-8") + deny, encoding="utf-8")
    return root


def with_a_fast_default(kernel: str) -> float:
    return 1.0 if kernel == DEFAULT_SECOND else plain_us(kernel)


def test_a_denied_default_is_measured_with_and_never_chosen(tune: Tune, tmp_path: Path) -> None:
    write_denying(write_tiny(tmp_path))
    lab = Lab(us=with_a_fast_default)
    done = tune(lab)
    assert done.returncode == 0, done.stdout
    assert "MOE307" not in done.stdout
    assert DEFAULT_SECOND in {two for _, two in lab.screened}
    assert DEFAULT_SECOND not in {two for _, two, _ in lab.verified}
    assert {token: pair[1] for token, pair in pairs(tmp_path).items()} == {1: second(128, 3), 8: second(128, 3)}
    assert len(records(tmp_path)) == 2


def test_a_row_that_is_denied_by_now_neither_stands_nor_competes(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    tune(Lab(us=with_a_fast_default), "--tokens", "8")
    assert pairs(tmp_path)[8][1] == DEFAULT_SECOND
    write_denying(tmp_path)
    lab = Lab(us=with_a_fast_default)
    done = tune(lab, "--tokens", "8")
    assert done.returncode == 0, done.stdout
    assert "stands: " not in done.stdout
    assert DEFAULT_SECOND not in {two for _, two, _ in lab.verified}
    assert pairs(tmp_path)[8][1] == second(128, 3)


def test_what_is_fast_at_a_first_look_alone_is_not_written(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    looks = {first(n, s, e): 1.0 for n in (32, 64) for s in (2, 3) for e in ("", "_fp4")}
    done = tune(Lab(us=lambda kernel: 6.0, looks_like=looks), "--tokens", "8")
    assert not rows(tmp_path)
    assert "slower, not faster, than what runs without it" in done.stdout
    assert "MOE552" in done.stdout


# --- going on


def once_a_bucket(screened: Sequence[tuple[str, str]]) -> bool:
    """Both buckets have the same candidates."""
    return set(Counter(screened).values()) == {2}


def test_a_second_run_does_nothing_twice(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    tune(Lab(wrong=frozenset({first(64, 3)}), broken=frozenset({first(32, 2)})))
    before = (tmp_path / PORTABLE_TABLE).read_bytes()
    again = Lab()
    done = tune(again)
    assert done.returncode == 0, done.stdout
    assert (again.screened, again.verified) == ([], [])
    assert (tmp_path / PORTABLE_TABLE).read_bytes() == before
    assert done.stdout.count("stands: ") == 2


@pytest.mark.parametrize("us", [plain_us, lambda kernel: 6.0], ids=["a row that stands", "nothing found"])
def test_by_another_verifier_all_is_done_again(
    us: Callable[[str], float], tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny(tmp_path)
    first_run, again = Lab(us=us), Lab(us=us)
    tune(first_run)
    monkeypatch.setattr(plan, "verifier_digest", lambda: "another")
    tune(again)
    assert set(again.screened) >= set(first_run.screened)
    assert set(again.verified) >= set(first_run.verified)


def test_what_found_nothing_is_not_searched_again_and_told_again(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    slow, again = Lab(us=lambda kernel: 6.0), Lab()
    tune(slow)
    done = tune(again)
    assert (again.screened, again.verified) == ([], [])
    assert "MOE552" in done.stdout


def test_a_row_that_is_gone_comes_back_without_work(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    tune(Lab(wrong=frozenset({first(64, 3)})))
    before = pairs(tmp_path)
    (tmp_path / PORTABLE_TABLE).unlink()
    again = Lab()
    assert tune(again).returncode == 0
    assert pairs(tmp_path) == before
    assert again.screened == []


def test_a_row_that_is_there_competes(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    tune(Lab())
    there = pairs(tmp_path)
    wider = SPACE.replace("tile_n: [32, 64]", "tile_n: [32]").replace("stages: [2, 3], mode", "stages: [2], mode")
    (tmp_path / "space.yaml").write_text(wider, encoding="utf-8")
    lab = Lab()
    done = tune(lab)
    assert pairs(tmp_path) == there
    assert {(one, two) for one, two, _ in lab.verified} - set(there.values())
    assert "There already" in done.stdout


def test_fresh_does_everything_again(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    first_run, again = Lab(), Lab()
    tune(first_run)
    tune(again, "--fresh")
    assert set(again.screened) >= set(first_run.screened)
    assert set(again.verified) >= set(first_run.verified)


def test_ctrl_c_loses_nothing_that_is_finished(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    interrupted = Lab()
    honest = interrupted.answer

    def answer(job: Job) -> dict[str, object] | str:
        if interrupted.screened:
            raise KeyboardInterrupt
        return honest(job)

    interrupted.answer = answer  # type: ignore[method-assign]
    assert tune(interrupted).returncode == 130
    again = Lab()
    assert tune(again).returncode == 0
    assert interrupted.screened
    assert once_a_bucket(interrupted.screened + again.screened)
    assert set(pairs(tmp_path)) == {1, 8}


def test_a_budget_ends_the_search_and_a_second_run_goes_on(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny(tmp_path)
    clock = [0.0]
    monkeypatch.setattr(tune_command, "Budget", lambda seconds: Budget(seconds, lambda: clock[0]))
    lab = Lab()
    honest = lab.answer

    def answer(job: Job) -> dict[str, object] | str:
        clock[0] += 10
        return honest(job)

    lab.answer = answer  # type: ignore[method-assign]
    done = tune(lab, "--budget", "15")
    assert done.returncode == 0
    assert "MOE553 tiny/tp2-triton#target: [1, 8] tokens are left" in done.stdout
    assert not lab.verified
    assert tune(lab).returncode == 0
    assert once_a_bucket(lab.screened)
    assert set(pairs(tmp_path)) == {1, 8}


def test_workers_that_die_are_replaced_and_asked_for_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path)
    notes, worker = tmp_path / "notes", Path(__file__).parent.parent / "tuning_worker.py"
    monkeypatch.setenv("TUNING_NOTES", str(notes))
    monkeypatch.setenv("TUNING_KILLER", first(64, 3))
    monkeypatch.setenv("PYTHONPATH", str(worker.parent))
    monkeypatch.setattr(tune_command, "local_gpus", lambda: local(gpu(board="NVIDIA H200")))

    def pool(gpus: Sequence[Gpu], limit_s: float) -> Pool:
        return Pool(1, 1, limit_s, lambda threads, index: [sys.executable, str(worker)], gpus)

    monkeypatch.setattr(tune_command, "local_pool", pool)
    space = str(tmp_path / "space.yaml")
    done = run_moeshapes("tune", SHAPE, "--tokens", "8", "--space", space, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not tried: 1 × the worker was killed by SIGSEGV" in done.stdout
    assert pairs(tmp_path)[8] == (first(64, 3, "_fp4"), second(128, 3))
    assert notes.read_text().splitlines() == [
        *("screen 8", "screen 4", "screen 4", "screen 2", "screen 2", "screen 1", "screen 1"),
        "screen 4",
        *["verify 0"] * 3,
    ]


# --- what is asked for


@pytest.mark.parametrize("what", [SHAPE, "triton_tiny_untuned_fmoe.csv", "triton_tiny_tuned_fmoe.csv"])
def test_a_shape_or_a_table_is_tuned(what: str, tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    assert tune(Lab(), "--tokens", "1", what=what).returncode == 0
    assert set(pairs(tmp_path)) == {1}


@pytest.mark.parametrize(
    ("what", "options", "said", "remedy"),
    [
        ("tiny/tp2-tritom", (), "did you mean `tiny/tp2-triton`?", "Name a shape or an untuned table of"),
        (SHAPE, ("--tokens", "8,64"), "does not declare 64 tokens", "Move the buckets from `left_out` to `tokens`"),
        (SHAPE, ("--gpu", "gfx950/256"), "and there is no GPU here", "Run it on a gfx950/256 or sm_90/132 GPU."),
    ],
)
def test_what_cannot_be_tuned_is_a_finding(
    what: str, options: Sequence[str], said: str, remedy: str, tune: Tune, tmp_path: Path
) -> None:
    write_tiny(tmp_path)
    done = tune(Lab(), *options, "--format", "json", what=what)
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)
    assert found["rule"] == "MOE551"
    assert said in found["message"]
    assert found["remedy"].startswith(remedy)


@pytest.mark.parametrize("gpus", [True, False])
@pytest.mark.parametrize("what", ["tiny/tp2", "tiny_untuned_fmoe.csv"])
def test_a_shape_of_aiters_kernels_is_sent_to_aiters_tuner(
    what: str, gpus: bool, tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_both_backends(write_tiny(tmp_path))
    if not gpus:
        monkeypatch.setattr(tune_command, "local_gpus", lambda: NO_GPUS)
    (found,) = json.loads(tune(Lab(), "--format", "json", what=what).stdout)
    assert f"`{what}` is of AITER's kernels, which its own tuner tunes" in found["message"]
    untuned = "generated/aiter/configs/model_configs/tiny_untuned_fmoe.csv"
    assert found["remedy"] == f"Run `moeshapes select --tune --aiter DIR --source NOTE {untuned}` on its GPU."


def test_a_gpu_of_another_kind_may_be_declared(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    shape = tmp_path / f"shapes/{SHAPE}.yaml"
    shape.write_text(shape.read_text(encoding="utf-8").replace("{gfx: sm_90, cu_num: 132}", "{gfx: sm_90, cu_num: 78}"))
    done = tune(Lab())
    assert done.returncode == 1
    assert "GPU, or declare the one here in `gpus`." in done.stdout


def test_without_a_gpu_nothing_is_tuned(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path)
    monkeypatch.setattr(tune_command, "local_gpus", lambda: NO_GPUS)
    done = tune(Lab())
    assert (done.returncode, "MOE551" in done.stdout) == (1, True)


def test_bad_buckets_are_refused(tune: Tune, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    done = tune(Lab(), "--tokens", "3..9")
    assert done.returncode == 2
    assert "the ends of `3..9` must be powers of two" in done.stderr
