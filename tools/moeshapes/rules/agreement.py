"""Rules about kernel names that contradict the row's key or its flags."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.device import has_aiter
from moeshapes.findings import Finding
from moeshapes.kernel_name import KernelName
from moeshapes.portable import FAMILIES
from moeshapes.recipe import Format
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

WRONG_ACTIVATION = Rule(
    "MOE313", "wrong-activation", Severity.ERROR,
    what="A kernel does not compute the row's act_type.",
    why="Depending on its family it silently computes another activation, is not found, or the row is discarded.",
    fix="Name a kernel of the row's activation.",
)  # fmt: skip
WRONG_WEIGHTING = Rule(
    "MOE314", "wrong-weighting", Severity.ERROR,
    what="A kernel applies the routing weight in another stage than doweight_stage1 says.",
    why="The weight would be applied twice or not at all.",
    fix="Name a kernel of the row's doweight_stage1.",
)  # fmt: skip
WRONG_QUANTISATION = Rule(
    "MOE315", "wrong-quantisation", Severity.ERROR,
    what="A kernel's name states another kind of scale than q_type.",
    why="The kernel would read the scales as if each covered other elements.",
    fix="Name a kernel of the row's q_type.",
)  # fmt: skip
WRONG_ARCHITECTURE = Rule(
    "MOE316", "wrong-architecture", Severity.ERROR,
    what="A kernel is of a family that the row's architecture does not have.",
    why="gfx942 has no instructions for MX formats, and some families exist for one architecture alone.",
    fix="Name a kernel of the architecture, or correct gfx.",
)  # fmt: skip
WRONG_FLAG = Rule(
    "MOE317", "wrong-flag", Severity.ERROR,
    what="xbf16, flat or ksplit is not what the kernel's name needs.",
    why="The kernel would be given input of another format or order than it reads, or a split that it cannot do.",
    fix="Set the flag as the kernel's name says.",
)  # fmt: skip

_COMPUTES = {
    "flydsl_moe1": ("silu", "swiglu", "situv2"),
    "opus_moe1": ("silu", "swiglu", "situv2"),
    "cktile": ("silu", "swiglu"),
}
"""What families compute whose activation is an argument (contract 3.4). asm stage 1 computes any."""
_COMPUTES_ON_BF16 = ("silu", "situv2")
_HAVE_MX = frozenset({"gfx950", "gfx1250"})
_ARCHITECTURES = {
    **dict.fromkeys(("mxmoe_g1", "mxmoe_g2", "moe2_layout", "cktile", "cktile_label"), _HAVE_MX),
    **dict.fromkeys(("opus_moe1", "opus_moe2"), frozenset({"gfx950"})),
    "grouped_gemm": frozenset({"gfx1250"}),
}


@check
def activations(subject: Subject) -> Iterator[Finding]:
    act_type = subject.row.key.shape.act_type
    wanted = act_type.partition(".")[2].lower()
    for column, kernel in subject.parsed:
        computes = (kernel.activation,) if kernel.activation else _computes(kernel)
        if computes and wanted not in computes:
            listed = " or ".join(computes)
            message = f"kernelName{column} `{kernel.render()}` computes {listed}, but act_type is `{act_type}`"
            yield subject.finding(WRONG_ACTIVATION, message)


def _computes(kernel: KernelName) -> tuple[str, ...]:
    """The activations that the kernel can be told to compute; none where that is not known."""
    if kernel.family == "flydsl_moe1" and kernel.a is Format.BF16:
        return _COMPUTES_ON_BF16
    return _COMPUTES.get(kernel.family, ())


@check
def weightings(subject: Subject) -> Iterator[Finding]:
    asked = subject.row.key.shape.doweight_stage1
    for column, kernel in subject.parsed:
        if kernel.doweight_stage1 is not None and kernel.doweight_stage1 != bool(asked):
            stage = 1 if kernel.doweight_stage1 else 2
            message = f"kernelName{column} `{kernel.render()}` leaves the weight to stage {stage}"
            yield subject.finding(WRONG_WEIGHTING, f"{message}, but doweight_stage1 is {asked}")


@check
def quantisations(subject: Subject) -> Iterator[Finding]:
    q_type = subject.row.key.shape.q_type
    for column, kernel in subject.parsed:
        admitted = sorted(str(each) for each in kernel.q_types)
        if admitted and q_type not in admitted:
            message = f"kernelName{column} `{kernel.render()}` is for {' or '.join(admitted)}, but q_type is `{q_type}`"
            yield subject.finding(WRONG_QUANTISATION, message)


@check
def architectures(subject: Subject) -> Iterator[Finding]:
    gfx = subject.row.key.gfx
    for column, kernel in subject.parsed:
        legal = _ARCHITECTURES.get(kernel.family) or (_HAVE_MX if _needs_mx(kernel) else None)
        runs = gfx in legal if legal else has_aiter(gfx)
        if runs or kernel.family in FAMILIES:  # Triton expands what the hardware lacks
            continue
        where = " and ".join(sorted(legal)) if legal else "AMD GPUs"
        message = f"kernelName{column} `{kernel.render()}` runs on {where}, not on {gfx}"
        yield subject.finding(WRONG_ARCHITECTURE, message)


def _needs_mx(kernel: KernelName) -> bool:
    return kernel.a is Format.FP4 or (kernel.family.startswith("flydsl") and kernel.a is Format.FP8)


@check
def flags(subject: Subject) -> Iterator[Finding]:
    row = subject.row
    for column, kernel in subject.parsed:
        needs: list[tuple[str, int, int | str | None]] = []
        if row.run_1stage and kernel.stage == 0:
            needs = [("xbf16", row.xbf16, int(kernel.xbf16)), ("flat", row.flat, kernel.flat)]
        elif kernel.family == "ck_gemm" and kernel.stage == 1 and bool(row.ksplit) != kernel.splits_k:
            needs = [("ksplit", row.ksplit, "above 0" if kernel.splits_k else 0)]
        elif kernel.family in FAMILIES and column == 1:
            needs = [(flag, getattr(row, flag), 0) for flag in ("ksplit", "xbf16", "flat")]
        for flag, stands, needed in needs:
            if stands != needed:
                message = f"{flag} is {stands}, but kernelName{column} `{kernel.render()}` needs {needed}"
                yield subject.finding(
                    WRONG_FLAG, message, f"Set {flag} to {needed}, if the kernel is the one measured."
                )
