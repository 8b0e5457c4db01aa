"""Profiles of AITER's tuner for tests, for the layer of small_repository."""

from __future__ import annotations

from pathlib import Path

from small_repository import MODEL, SHAPE, write_small_repository

EXAMPLES = Path(__file__).parent / "examples" / "profiles"
LIES = "_xcd4"
"""What kernels of padless_worker.py have in their names."""
HEADER = (
    "stage,gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    "doweight_stage1,block_m,ksplit,us,kernelName,err,tflops,bw,flat,v2"
)
STAGE1 = "flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2"
STAGE2 = "flydsl_moe2_afp4_wfp4_bf16_t32x128x256_atomic"


def kernel_line(stage: str, kernel: str, us: object, **cells: object) -> str:
    """A line of a profile, with the cells given."""
    names = HEADER.split(",")
    plain = dict.fromkeys(names, "0") | {
        "gfx": "gfx950",
        "cu_num": "256",
        "token": "8",
        "model_dim": "256",
        "inter_dim": "256",
        "expert": "8",
        "topk": "2",
        "act_type": "ActivationType.Silu",
        "dtype": "torch.bfloat16",
        "q_dtype_a": "torch.float4_e2m1fn_x2",
        "q_dtype_w": "torch.float4_e2m1fn_x2",
        "q_type": "QuantType.per_1x32",
        "use_g1u1": "1",
        "block_m": "32",
        "err": "1.0%",
    }
    given = {name: str(cell) for name, cell in cells.items()}
    return ",".join((plain | {"stage": stage, "kernelName": kernel, "us": str(us)} | given)[name] for name in names)


def write_profile(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([HEADER, *lines, ""]), encoding="utf-8")
    return path


def write_padded_repository(root: Path) -> Path:
    """The small repository with 224 columns in 256, so that a kernel may leave the pad unwritten."""
    model = MODEL.replace("moe_intermediate_size: 512", "moe_intermediate_size: 448")
    write_small_repository(root, model=model)
    shape = SHAPE.replace("recipe: a4w4", "recipe: a4w4\npad: {inter_dim: 256}")
    (root / "shapes" / "tiny" / "tp2.yaml").write_text(shape, encoding="utf-8")
    return root
