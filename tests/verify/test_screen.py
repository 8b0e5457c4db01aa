"""Screening tells junk from what may be right, candidate by candidate; what breaks the device ends the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs import job, launch
from moeshapes.backends.emulate import EmulateBackend
from moeshapes.verify import screen as screening
from moeshapes.verify import speed
from moeshapes.verify.check import LayerCache
from moeshapes.verify.job import SCREEN, Job
from moeshapes.verify.screen import APART, screen, why_implausible

GOOD, ODD, LOUD = "good", "odd", "loud"


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_plausible(bad: float) -> None:
    output = torch.ones(4, 8)
    output[2, 3] = bad
    assert why_implausible(output, torch.ones(4, 8)) == "1 NaN or Inf"


@pytest.mark.parametrize(("share", "plausible"), [(0.5 * APART, True), (1.5 * APART, False)])
def test_one_token_far_off_is_enough(share: float, plausible: bool) -> None:
    wanted = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)).bfloat16().float()
    output = wanted.clone()
    output[3] *= 1 + share
    assert (why_implausible(output, wanted) == "") is plausible


def test_tokens_of_nothing_are_plausible() -> None:
    assert not why_implausible(torch.zeros(2, 8), torch.zeros(2, 8))
    assert why_implausible(torch.ones(2, 8), torch.zeros(2, 8))


@dataclass
class Lab:
    """A device that may break for good."""

    broken: bool = False


class Arm:
    """Computes as what runs without a row does, but for what its name says."""

    def __init__(self, arm: Any, name: str) -> None:
        self.arm, self.name = arm, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.arm, name)

    def run(self, call: Any, out: Tensor | None = None) -> Tensor:
        if self.name == LOUD:
            raise RuntimeError("out of resource: shared memory")
        output: Tensor = self.arm.run(call)
        return output * 2 if self.name == ODD else output


class Prepared:
    def __init__(self, prepared: Any) -> None:
        self.prepared = prepared

    def arm(self, row: Any, token: int, lookup: Any) -> Arm:
        return Arm(self.prepared.arm(None, token, lookup), row["kernelName1"] if row else "")


class Backend(EmulateBackend):
    def prepare(self, layer: Any) -> Any:
        return Prepared(super().prepare(layer))


class Graph:
    def __init__(self, us: float) -> None:
        self.us = us

    def replay_us(self) -> float:
        return self.us


class FakeLab:
    def __init__(self, runs: Any, seed: int) -> None:
        ((self.arm, _), *_), self.calls = runs[0], len(runs[0])

    def capture(self, arm: int) -> Graph:
        return Graph(self.calls * (7.0 if self.arm.name else 9.0))

    def release(self) -> None: ...


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = Lab()

    def synchronize() -> None:
        if lab.broken:
            raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(screening, "GpuLab", FakeLab)
    monkeypatch.setattr(speed, "last_level_cache", lambda: 0)
    return lab


def asked(*names: str) -> Job:
    return job(task=SCREEN, counts=(4, 3), candidates=tuple(launch(name, name) for name in names))


def test_each_candidate_has_its_time_or_its_error(lab: Lab) -> None:
    times = list[None]()
    with torch.inference_mode():
        found = screen(asked(GOOD, ODD, LOUD, GOOD), Backend(), LayerCache(), lambda: times.append(None))
    assert found["us"] == 9.0
    first, odd, loud, last = found["candidates"]
    assert first == last == {"us": 7.0}
    assert odd["error"].startswith("a token is 1 of its length")
    assert loud == {"error": "RuntimeError: out of resource: shared memory"}
    assert len(times) == 4


def test_a_device_that_is_broken_for_good_ends_the_job(lab: Lab) -> None:
    with torch.inference_mode(), pytest.raises(RuntimeError, match="illegal memory access"):
        screen(asked(GOOD), Backend(), LayerCache(), lambda: setattr(lab, "broken", True))


def test_a_screening_survives_the_way_to_its_worker() -> None:
    wanted = asked(GOOD, ODD)
    assert Job.from_json(wanted.to_json()) == wanted
