"""`moeshapes verify --weights`: a repository's rows with a checkpoint's weights, and what is refused."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import checkpoints
from checkpoints import Sample
from moeshapes.checkpoint.index import INDEX
from moeshapes.checkpoint.layer import read_layer
from moeshapes.checkpoint.reader import Reader
from moeshapes.problem import Activation, Problem
from process import run_moeshapes
from small_repository import SHAPE, tuned_line, write_small_repository

LAYER = "model.layers.0"
SHARDS, SHARD_BYTES = 25, 2 << 30


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = write_small_repository(tmp_path / "repository", tuned_line(8))
    assert run_moeshapes("generate", cwd=root).returncode == 0
    return root


def sample() -> Sample:
    """Of the repository's shape, in its recipe."""
    return checkpoints.qwen3(checkpoints.mxfp4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sample().write(tmp_path / "checkpoint")


def test_rows_are_judged_with_the_checkpoints_weights(repository: Path, folder: Path) -> None:
    arguments = ("verify", "--weights", str(folder), "--layer", "layers.0", "--rank", "1")
    done = run_moeshapes(*arguments, cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 rows × uses judged: 3 emulated (0 from the cache), 0 fail, 0 error; 0 skipped" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("weights: ")]
    expected = r"weights: model\.layers\.0 as rank 1 holds it: 820 KiB of 50 tensors \(8 routed experts\) and "
    assert re.match(expected + r"[\d.]+ KiB of headers read, of a checkpoint of 1\.[\d.]+ MiB; codes as stored", line)
    records = [json.loads(path.read_text()) for path in (repository / "build" / "records").glob("*.json")]
    assert {(record["numerics"]["weights"]["layer"], record["numerics"]["weights"]["rank"]) for record in records} == {
        (LAYER, 1)
    }
    assert str(folder) not in json.dumps(records)

    again = run_moeshapes(*arguments, cwd=repository)
    assert "3 emulated (3 from the cache)" in again.stdout
    drawn = run_moeshapes("verify", cwd=repository)
    assert "3 emulated (0 from the cache)" in drawn.stdout
    assert "weights: " not in drawn.stdout


def test_json_has_what_was_read(repository: Path, folder: Path) -> None:
    done = run_moeshapes(
        "verify", "--weights", str(folder), "--layer", LAYER, "--format", "json", "--backend", "emulate", cwd=repository
    )
    results = json.loads(done.stdout)["results"]
    assert {result["record"]["numerics"]["weights"]["tensors_read"] for result in results} == {50}


def test_uses_of_other_shapes_are_left_out(repository: Path, folder: Path) -> None:
    other = SHAPE.replace("model: tiny", "model: other").replace("tiny_", "other_")
    tiny = (repository / "models" / "tiny.yaml").read_text()
    model = tiny.replace("Tiny", "Other").replace("experts: 8", "experts: 16")
    (repository / "models" / "other.yaml").write_text(model)
    (repository / "shapes" / "other").mkdir()
    (repository / "shapes" / "other" / "tp2.yaml").write_text(other)
    assert run_moeshapes("generate", cwd=repository).returncode == 0
    done = run_moeshapes("verify", "--weights", str(folder), "--layer", "layers.0", cwd=repository)
    assert "3 rows × uses judged: 3 emulated (0 from the cache), 0 fail, 0 error; 0 skipped" in done.stdout


def test_a_rank_that_one_deployment_has_and_another_lacks_is_skipped_there(repository: Path, folder: Path) -> None:
    whole = SHAPE.replace("tp: 2", "tp: 1").replace("tiny_", "tiny_tp1_")
    (repository / "shapes" / "tiny" / "tp1.yaml").write_text(whole)
    assert run_moeshapes("generate", cwd=repository).returncode == 0
    done = run_moeshapes("verify", "--weights", str(folder), "--layer", "layers.0", "--rank", "1", cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 emulated (0 from the cache), 0 fail, 0 error; 2 skipped" in done.stdout
    assert "skipped 2: real weights: rank 1 of 1 ranks" in done.stdout


# --- refused

Damage = Callable[[Path], None]


def refuse(repository: Path, *arguments: str) -> str:
    """What is said of arguments that cannot be used."""
    done = run_moeshapes("verify", *arguments, cwd=repository)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    return done.stderr


def test_a_folder_that_is_not_there_is_refused(repository: Path) -> None:
    assert "does not exist" in refuse(repository, "--weights", "nowhere", "--layer", "layers.0")


def test_one_option_without_the_other_is_refused(repository: Path, folder: Path) -> None:
    for arguments in (("--weights", str(folder)), ("--layer", "layers.0")):
        assert "--weights DIR and --layer NAME go together" in refuse(repository, *arguments)


def test_a_negative_rank_is_refused(repository: Path, folder: Path) -> None:
    assert "--rank" in refuse(repository, "--weights", str(folder), "--layer", "layers.0", "--rank", "-1")


def test_a_rank_that_no_deployment_has_is_refused_with_those_there_are(repository: Path, folder: Path) -> None:
    said = refuse(repository, "--weights", str(folder), "--layer", "layers.0", "--rank", "2")
    assert "nothing that is asked for has a rank 2: tiny/tp2#target has ranks 0 to 1" in said


def test_a_layer_that_no_row_has_is_refused(repository: Path, tmp_path: Path) -> None:
    latent = checkpoints.kimi_k3().write(tmp_path / "latent")
    said = refuse(repository, "--weights", str(latent), "--layer", "layers.1")
    assert "no row and no declared use has the shape of `language_model.model.layers.1` (Kimi-K3): 8 experts of" in said


def remap(folder: Path, name: str, shard: str | None) -> None:
    content = json.loads((folder / INDEX).read_text())
    if shard is None:
        del content["weight_map"][f"{LAYER}.{name}"]
    else:
        content["weight_map"][f"{LAYER}.{name}"] = shard
    (folder / INDEX).write_text(json.dumps(content))


def overwrite(file: Path, text: str) -> None:
    file.write_text(text)


def cut_off(folder: Path) -> None:
    shard = sorted(folder.glob("*.safetensors"))[1]
    with shard.open("r+b") as stream:
        stream.truncate(shard.stat().st_size - 100)


DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "a shard cut off": (cut_off, "MOE541", "the shard cannot be read"),
    "a shard missing": (lambda folder: sorted(folder.glob("*.safetensors"))[1].unlink(), "MOE541", "is not there"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "MOE541", "there is no such file"),
    "no router facts": (lambda folder: overwrite(folder / "config.json", "{}"), "MOE546", "scoring_func"),
    "a path for a shard": (lambda folder: remap(folder, "mlp.gate.weight", "../../x.safetensors"), "MOE542", "../../x"),
    "a tensor not in the index": (
        lambda folder: remap(folder, "mlp.experts.3.up_proj.weight", None), "MOE544", "mlp.experts.3.up_proj",
    ),
    "no JSON": (lambda folder: overwrite(folder / INDEX, "{"), "MOE541", "not readable JSON"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_a_finding(damage: str, repository: Path, folder: Path) -> None:
    inflict, rule, part = DAMAGES[damage]
    inflict(folder)
    done = run_moeshapes("verify", "--weights", str(folder), "--layer", "layers.0", cwd=repository)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert f"error {rule} " in done.stdout
    assert part in done.stdout
    assert "rows × uses judged" not in done.stdout


def test_a_layer_that_is_not_there_is_a_finding_even_in_json(repository: Path, folder: Path) -> None:
    done = run_moeshapes(
        "verify", "--weights", str(folder), "--layer", "layers.9\x1b[31m", "--format", "json", cwd=repository
    )
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["rule"] == "MOE543"
    assert "\x1b" not in done.stdout + done.stderr


def test_weights_that_are_nan_are_the_jobs_error(repository: Path, tmp_path: Path) -> None:
    bf16 = checkpoints.qwen3()
    broken = bf16["mlp.experts.1.gate_proj.weight"].clone()
    broken[3, 5] = torch.nan
    folder = bf16.having(mlp__experts__1__gate_proj__weight=broken).write(tmp_path / "broken")
    done = run_moeshapes("verify", "--weights", str(folder), "--layer", "layers.0", cwd=repository)
    assert done.returncode == 1
    assert "the checkpoint has weights that are NaN or infinite" in done.stdout
    assert "0 emulated (0 from the cache), 0 fail, 3 error" in done.stdout


# --- a large checkpoint


def write_sparse(folder: Path) -> Path:
    """The sample within 50 GiB that are holes but for its tensors, which stand in two of 25 shards."""
    sample().write(folder)
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    for number in range(SHARDS):
        small = folder / f"model-{number + 1:05}-of-00002.safetensors"
        large = folder / f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        filler = f"model.layers.{number + 1}.self_attn.q_proj.weight"
        tensors, data = taken_apart(small) if small.exists() else ({}, b"")
        place(large, tensors, data, filler)
        small.unlink(missing_ok=True)
        weight_map[filler] = large.name
    names = {name: shard.replace("-of-00002", f"-of-{SHARDS:05}") for name, shard in weight_map.items()}
    (folder / INDEX).write_text(json.dumps({"weight_map": names}))
    return folder


def taken_apart(shard: Path) -> tuple[dict[str, Any], bytes]:
    content = shard.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def place(shard: Path, tensors: dict[str, Any], data: bytes, filler: str) -> None:
    """Writes tensors behind a hole that another one fills."""
    hole = SHARD_BYTES - len(data)
    header: dict[str, Any] = {filler: {"dtype": "U8", "shape": [hole], "data_offsets": [0, hole]}}
    for name, described in tensors.items():
        if name != "__metadata__":
            start, stop = described["data_offsets"]
            header[name] = {**described, "data_offsets": [start + hole, stop + hole]}
    written = json.dumps(header).encode()
    with shard.open("wb") as stream:
        stream.write(struct.pack("<Q", len(written)) + written)
        stream.seek(hole, 1)
        stream.write(data)
        stream.truncate(8 + len(written) + SHARD_BYTES)


def resident(folder: Path) -> int:
    """Bytes of the folder's files that this process has mapped and touched."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = str(folder) in line
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


def test_of_50_gib_only_the_layer_is_read(repository: Path, tmp_path: Path) -> None:
    folder = write_sparse(tmp_path / "large")
    assert sum(path.stat().st_blocks for path in folder.iterdir()) * 512 < 64 << 20, "the file system has no holes"
    done = run_moeshapes("verify", "--weights", str(folder), "--layer", "layers.0", cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 emulated (0 from the cache)" in done.stdout
    assert "820 KiB of 50 tensors (8 routed experts)" in done.stdout
    assert "of a checkpoint of 50 GiB" in done.stdout


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the kernel does not tell what is mapped")
def test_pages_that_no_slice_touches_stay_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_sparse(tmp_path / "large")
    touched: list[int] = []
    leave = Reader.__exit__

    def measured(reader: Reader, *error: object) -> None:
        touched.append(resident(folder))
        leave(reader, *error)  # type: ignore[arg-type]

    monkeypatch.setattr(Reader, "__exit__", measured)
    what = Problem(
        model_dim=256, inter_dim=256, expert=8, topk=2, recipe_name="a4w4", fnuz=False, activation=Activation("silu")
    )
    layer = read_layer(folder, LAYER, what, 0, 1 << 40, torch.device("cpu"))
    assert layer.origin
    assert layer.origin["checkpoint_bytes"] > SHARDS * SHARD_BYTES
    # A page, and its neighbours that the kernel maps with it, for each tensor at most.
    assert touched[0] < layer.origin["bytes_read"] + layer.origin["tensors_read"] * (128 << 10)
