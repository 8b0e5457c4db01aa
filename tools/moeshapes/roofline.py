"""What a fused MoE must move and compute at least, and how long that takes at a device's peaks."""

from __future__ import annotations

from statistics import NormalDist

from moeshapes.device import PEAKS
from moeshapes.recipe import Format, format_of
from moeshapes.row import Key, UntunedRow

_QUANTILES = [NormalDist().inv_cdf((number + 0.5) / 64) for number in range(64)]
_BYTES = {Format.BF16: 2.0, Format.FP8: 1.0, Format.INT8: 1.0, Format.FP4: 0.5, Format.INT4: 0.5}


def flops(shape: UntunedRow) -> int:
    """Operations of both stages: 6 · tokens · topk · model_dim · inter_dim (contract 2.3)."""
    return 6 * shape.token * shape.topk * shape.model_dim * shape.inter_dim


def expert_bytes(shape: UntunedRow) -> float | None:
    """Bytes of one expert's weights as packed, without scales; None for a format that no recipe has."""
    weights = format_of(shape.q_dtype_w)
    return None if weights is None else 3 * shape.model_dim * shape.inter_dim * _BYTES[weights]


def expected_experts(shape: UntunedRow) -> float:
    """Distinct experts that uniform random routing of the bucket's tokens is expected to hit."""
    missed = max(0.0, 1 - shape.topk / shape.expert) ** shape.token
    return shape.expert * (1 - missed)


def drawn_experts(shape: UntunedRow, shared: int) -> float:
    """Distinct experts that the verifier's routing of the bucket's tokens is expected to hit, to some percent below.

    A token takes the experts of its largest logits, each the sum of a normal popularity of the expert's own and of
    normal noise (workload.drawn_front), and besides them the last `shared` ones. Taken as those above one threshold.
    """
    routed, slots = shape.expert - shared, shape.topk - shared
    if not 0 < slots < routed:
        return float(shape.expert if slots >= routed else shared)
    threshold = NormalDist(sigma=2**0.5).inv_cdf(1 - slots / routed)
    missed = [NormalDist(popularity).cdf(threshold) ** shape.token for popularity in _QUANTILES]
    return shared + routed * (1 - sum(missed) / len(missed))


def read_time(key: Key, experts: float) -> float | None:
    """Microseconds to read that many experts' weights at peak bandwidth; None without facts on device or format."""
    size, peaks = expert_bytes(key.shape), PEAKS.get(key.gfx)
    return None if size is None or peaks is None else 1e6 * experts * size / peaks.bandwidth


def compute_time(key: Key) -> float | None:
    """Microseconds to compute both stages at the peak rate; None without facts on device or format."""
    activations, peaks = format_of(key.shape.q_dtype_a), PEAKS.get(key.gfx)
    return (
        None if activations is None or peaks is None else 1e6 * flops(key.shape) / peaks.flops(key.cu_num, activations)
    )
