"""Where rows are run: on a GPU of their kind, else emulated, and not at all where that is not what was asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpus import gpu, local
from jobs import MXMOE
from moeshapes.row import TunedRow
from moeshapes.verify.gpus import NO_GPUS, LocalGpus
from moeshapes.verify.site import AUTO, EMULATE, EMULATED_UP_TO, ON_GPU_UP_TO, PORTABLE, Placement, Site
from small_repository import portable_row, tuned_row

HERE = local(gpu(0, cu_num=114), gpu(1))
EMULATED = Placement(EMULATE)


def place(row: TunedRow, backend: str = AUTO, here: LocalGpus = HERE) -> Placement:
    return Site(backend, here).place(row.key, row.is_portable)


def test_a_site_knows_which_keys_its_gpus_are_for() -> None:
    assert Site(AUTO, HERE).has_gpu(portable_row().key)
    assert not Site(AUTO, HERE).has_gpu(portable_row(cu_num="131").key)
    assert not Site(AUTO, NO_GPUS).has_gpu(portable_row().key)


@pytest.mark.parametrize("backend", [AUTO, PORTABLE])
def test_a_row_of_portable_kernels_runs_on_a_gpu_of_its_kind(backend: str) -> None:
    assert place(portable_row(), backend) == Placement(PORTABLE, gpu(1))
    on_amd = local(gpu(0, gfx="gfx950", cu_num=256))
    assert place(portable_row(gfx="gfx950", cu_num="256"), backend, on_amd) == Placement(PORTABLE, on_amd.gpus[0])


def test_without_such_a_gpu_it_is_emulated_and_that_is_said() -> None:
    for here in (NO_GPUS, local(gpu(cu_num=114)), local(gpu(gfx="sm_80"))):
        assert place(portable_row(), here=here) == Placement(EMULATE, note="no sm_90/132 GPU is here")
    broken = replace(NO_GPUS, problem="torch sees no GPU")
    assert place(portable_row(), here=broken).note == "no sm_90/132 GPU is here: torch sees no GPU"


def test_without_such_a_gpu_it_is_refused_where_only_the_portable_backend_will_do() -> None:
    assert place(portable_row(), PORTABLE, NO_GPUS).refused == "no sm_90/132 GPU is here"


@pytest.mark.parametrize("names", [MXMOE, ("a_kernel", "another")])
def test_rows_of_other_kernels_are_emulated_even_where_their_gpu_is(names: tuple[str, str]) -> None:
    row = tuned_row(8, kernelName1=names[0], kernelName2=names[1])
    here = local(gpu(gfx="gfx950", cu_num=256))
    emulated = Placement(EMULATE, note="AITER is not installed beside the gfx950/256 GPU")
    assert place(row, here=here) == emulated
    assert place(row, PORTABLE, here).refused == "not a row of the portable kernels"


def test_emulation_can_be_asked_for() -> None:
    assert place(portable_row(), EMULATE) == EMULATED


def test_emulation_has_a_largest_bucket_and_a_gpu_has_none() -> None:
    assert place(portable_row(EMULATED_UP_TO), EMULATE).refused == ""
    assert f"up to {EMULATED_UP_TO} tokens" in place(portable_row(2 * EMULATED_UP_TO), EMULATE).refused
    assert place(portable_row(16 * ON_GPU_UP_TO), AUTO).refused == ""


def test_a_recipe_whose_scale_follows_from_all_tokens_has_one_on_a_gpu_too() -> None:
    cells = {"q_dtype_a": "torch.float8_e4m3fn", "q_dtype_w": "torch.float8_e4m3fn", "q_type": "QuantType.per_Tensor"}
    here = local(gpu(gfx="gfx950", cu_num=256, aiter="abc"))
    assert place(tuned_row(ON_GPU_UP_TO, **cells), AUTO, here).refused == ""
    assert f"up to {ON_GPU_UP_TO} tokens" in place(tuned_row(2 * ON_GPU_UP_TO, **cells), AUTO, here).refused
