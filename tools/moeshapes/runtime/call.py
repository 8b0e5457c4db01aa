"""Calls: everything that AITER's fused_moe looks at to choose kernels, as serving passes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from moeshapes.dispatch import LARGEST_STEP, TOP, Call, FormatChoice, bucket_of, choose_format
from moeshapes.recipe import Format, QType, format_of, recipe_of, torch_dtype
from moeshapes.row import Key, UntunedRow
from moeshapes.runtime.version import SENTINEL_SLOT, TOP_BUCKET, Version
from moeshapes.use import Use


@dataclass(frozen=True)
class RuntimeCall:
    """A call of fused_moe with `tokens` tokens (the true count) on one device.

    Dims in elements, padding included; `expert` counts the rank's own. `topk_width` is the width of topk_ids; with an
    `expert_mask` the caller has appended an always-masked slot to it. `hidden_pad` and `intermediate_pad` are what the
    call passes as arguments. `shuffled` says that both weights carry AITER's is_shuffled mark, `flydsl` that FlyDSL can
    be imported. `given` is q_dtype_a where it is known and not to be derived, as in a key or a log line.
    """

    tokens: int
    gfx: str
    cu_num: int
    model_dim: int
    inter_dim: int
    expert: int
    topk_width: int
    activation: str
    weight: Format
    q_type: QType
    dtype: str = "torch.bfloat16"
    use_g1u1: bool = True
    doweight_stage1: bool = False
    gate_mode: str = "separated"
    hidden_pad: int = 0
    intermediate_pad: int = 0
    swiglu_limit: float | None = None
    bias: bool = False
    expert_mask: bool = False
    shuffled: bool = True
    flydsl: bool = True
    given: Format | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    version: Version = field(default_factory=Version)

    @property
    def format(self) -> FormatChoice:
        """q_dtype_a, and what chose it."""
        if self.given:
            return FormatChoice(self.given, "given")
        return self.asked_for

    @property
    def asked_for(self) -> FormatChoice:
        """q_dtype_a as the rules choose it, whether or not it is given."""
        weight, q_type = self.weight, self.q_type
        return choose_format(Call(self.tokens, self.gfx, weight, q_type, self.activation, self.gate_mode, self.env))

    @property
    def bucket(self) -> int:
        bucket = bucket_of(self.tokens)
        return LARGEST_STEP if bucket == TOP and not self.version.has(TOP_BUCKET) else bucket

    @property
    def topk(self) -> int:
        """Top-k as the key has it."""
        return self.topk_width - int(self.expert_mask and self.version.has(SENTINEL_SLOT))

    @property
    def key(self) -> Key:
        shape = UntunedRow(
            token=self.bucket,
            model_dim=self.model_dim,
            inter_dim=self.inter_dim,
            expert=self.expert,
            topk=self.topk,
            act_type=f"ActivationType.{self.activation.capitalize()}",
            dtype=self.dtype,
            q_dtype_a=torch_dtype(self.format.format, self.gfx),
            q_dtype_w=torch_dtype(self.weight, self.gfx),
            q_type=str(self.q_type),
            use_g1u1=int(self.use_g1u1),
            doweight_stage1=int(self.doweight_stage1),
        )
        return Key(self.gfx, self.cu_num, shape)

    def number(self, variable: str, default: int) -> int:
        """An environment variable that AITER reads as a whole number; the default where it is none."""
        try:
            return int(self.env.get(variable, default))
        except ValueError:
            return default

    def with_tokens(self, tokens: int) -> RuntimeCall:
        return replace(self, tokens=tokens)


def call_of_use(key: Key, use: Use, tokens: int, expert_mask: bool) -> RuntimeCall:
    """The call that a declared use makes of a declared row's shape. The key's activation format is derived anew."""
    call = call_of_key(key, tokens)
    passed = use.pads == "arguments"
    return replace(
        call,
        given=None,
        topk_width=key.shape.topk + int(expert_mask),
        gate_mode=use.gate_mode,
        hidden_pad=use.hidden_pad if passed else 0,
        intermediate_pad=use.intermediate_pad if passed else 0,
        swiglu_limit=use.swiglu_limit,
        bias=use.bias,
        expert_mask=expert_mask,
        env=use.env,
    )


def call_of_key(key: Key, tokens: int | None = None) -> RuntimeCall:
    """A call that asks for a key as it stands, without an expert mask. ValueError where no recipe has its formats.

    The gates are separated, but where only interleaved ones ask for the key's activation format.
    """
    shape = key.shape
    recipe = recipe_of(shape.q_dtype_a, shape.q_dtype_w, shape.q_type)
    if recipe is None:
        raise ValueError(f"no recipe has {shape.q_dtype_a}, {shape.q_dtype_w}, {shape.q_type}")
    call = RuntimeCall(
        tokens=shape.token if tokens is None else tokens,
        gfx=key.gfx,
        cu_num=key.cu_num,
        model_dim=shape.model_dim,
        inter_dim=shape.inter_dim,
        expert=shape.expert,
        topk_width=shape.topk,
        activation=shape.act_type.rpartition(".")[2].lower(),
        weight=recipe.w,
        q_type=recipe.q_type,
        dtype=shape.dtype,
        use_g1u1=bool(shape.use_g1u1),
        doweight_stage1=bool(shape.doweight_stage1),
        given=format_of(shape.q_dtype_a),
    )
    interleaved = recipe.w in (Format.FP4, Format.FP8) and recipe.a is Format.FP8 and recipe.q_type is QType.PER_1X32
    silu_of_bf16 = recipe.name == "a16w4" and call.activation in ("silu", "gelu")
    return replace(call, gate_mode="interleave") if interleaved or silu_of_bf16 else call
