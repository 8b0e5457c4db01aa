"""Explanations against an independent walk of AITER's rules, over every shape there is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_dispatch
from moeshapes.deployment import deployments
from moeshapes.dispatch import BUCKETS, tokens_of
from moeshapes.explain import explain
from moeshapes.family import AITER_CONFIGS, merge_order, read_family
from moeshapes.log_line import parse_key
from moeshapes.repository import load_declarations
from moeshapes.row import Key
from moeshapes.runtime.call import RuntimeCall, call_of_key
from moeshapes.runtime.merged import MergedTable, merge


class Both:
    """A tree of tuned tables, read twice: as a merged table, and as plain rows for the walk."""

    def __init__(self, configs: Path) -> None:
        family = read_family(configs, AITER_CONFIGS, lambda path: path.name)
        self.table = merge(family.tuned.values())
        files = sorted((file for file, _ in family.tuned.items()), key=merge_order)
        self.rows = naive_dispatch.read_rows(configs / file for file in files)

        self.shapes = shapes_of(self.table)
        self.discardable = [row.key for row in self.table.rows if row.kernel2.startswith("opus_")]

    def agree(self, call: RuntimeCall) -> None:
        answer = explain("a call", call, self.table)
        expected = naive_dispatch.answer(call, self._near(call))
        place = str(answer.row.place) if answer.row else ""
        named = tuple(stage.name for stage in answer.plan.stages)
        assert (place, answer.plan.step, named, answer.plan.block_m, answer.plan.ksplit) == (
            expected.row,
            expected.step,
            expected.names,
            expected.block_m,
            expected.ksplit,
        ), call
        assert json.loads(json.dumps(answer.as_json(), allow_nan=False))["steps"]

    def _near(self, call: RuntimeCall) -> Sequence[naive_dispatch.Cells]:
        """The rows that can matter, so that the walk need not read all of them each time."""
        dims = (str(call.model_dim), str(call.inter_dim), str(call.expert))
        return [row for row in self.rows if (row["model_dim"], row["inter_dim"], row["expert"]) == dims]


@pytest.fixture(scope="module")
def aiter(aiter_configs: Path) -> Both:
    return Both(aiter_configs)


@pytest.fixture(scope="module")
def own(root: Path) -> Both:
    return Both(root / "generated" / "aiter" / "configs")


def ends(bucket: int) -> Iterable[int]:
    counts = tokens_of(bucket)
    return {counts[0], counts[-1]}


def shapes_of(table: MergedTable) -> list[Key]:
    """Every shape of a table once for each activation."""
    keys = (row.key for row in table.rows)
    return list(dict.fromkeys(replace(key, shape=replace(key.shape, token=1)) for key in keys))


def test_every_bucket_of_every_tuned_shape_of_aiter(aiter: Both) -> None:
    assert len(aiter.shapes) > 150
    for key in aiter.shapes:
        for bucket in BUCKETS:
            for tokens in ends(bucket):
                aiter.agree(call_of_key(key, tokens))
                aiter.agree(replace(call_of_key(key, tokens), given=None))


def test_every_bucket_of_every_declared_shape(root: Path, own: Both, aiter: Both) -> None:
    declarations, _ = load_declarations(root)
    declared = list(deployments(declarations))
    assert {deployment.shape.deployment for deployment in declared} == {s.deployment for s in declarations.shapes}
    for deployment in declared:
        for bucket in BUCKETS if not deployment.is_portable else ():
            for tokens in ends(bucket):
                for both in (own, aiter):
                    both.agree(deployment.call(tokens))


@settings(max_examples=200)
@given(data=st.data())
def test_under_any_circumstances(aiter: Both, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(aiter.shapes) | st.sampled_from(aiter.discardable))
    tokens = data.draw(st.just(key.shape.token) | st.integers(1, 200_000))
    call = call_of_key(key, tokens)
    changed: dict[str, Any] = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "activation": st.sampled_from(["silu", "gelu", "swiglu", "situv2"]),
                "gate_mode": st.sampled_from(["separated", "interleave"]),
                "bias": st.booleans(),
                "expert_mask": st.booleans(),
                "shuffled": st.booleans(),
                "flydsl": st.booleans(),
                "use_g1u1": st.booleans(),
                "given": st.none(),
                "inter_dim": st.sampled_from([192, 320, 384, 704]),
                "cu_num": st.sampled_from([80, 256, 304]),
                "env": st.dictionaries(
                    st.sampled_from(
                        ["AITER_BYPASS_TUNE_CONFIG", "AITER_KSPLIT", "AITER_FLYDSL_FORCE", "AITER_SITUV2_A8W4"]
                    ),
                    st.sampled_from(["-1", "0", "1", "4"]),
                ),
            },
        )
    )
    topk_width = call.topk_width + int(changed.get("expert_mask", False))
    aiter.agree(replace(call, **{**changed, "topk_width": topk_width}))


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (1, "ksplit 12, use_nt True, estimated m per expert 0: its heuristic's choice; this step has no split K"),
        (128, "block_m 32, ksplit 0, use_nt True, estimated m per expert 4"),
        (1024, "estimated m per expert 35: its heuristic's choice; this step has block_m 32"),
    ],
)
def test_where_the_log_has_another_launch_than_what_runs_it_says_whose_it_is(token: int, why: str) -> None:
    """FlyDSL's fallback, which sets its own tile whatever AITER's heuristic logs."""
    key = parse_key(f"gfx950,256,{token},6144,256,257,9,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0")
    assert isinstance(key, Key)
    *_, runs = explain("a call", call_of_key(key), merge([])).steps
    (logs,) = [line for line in runs.lines if line.startswith("AITER logs: ")]
    assert logs.endswith(why)
