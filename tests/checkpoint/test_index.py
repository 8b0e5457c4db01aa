"""An index is read or refused: never followed out of its folder, never half read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import checkpoints
from moeshapes.checkpoint.fault import CheckpointError
from moeshapes.checkpoint.index import CONFIG, INDEX, SINGLE, Entry, entries_of, open_index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoints.qwen3().write(tmp_path / "checkpoint")


def faults(folder: Path) -> list[tuple[str, str, str]]:
    """The rules, files and messages of what is wrong with the folder."""
    with pytest.raises(CheckpointError) as caught:
        open_index(folder)
    return [(f.rule.name, Path(f.place.file).name, f.message) for f in caught.value.findings]


def test_it_knows_every_tensors_shard(folder: Path) -> None:
    index = open_index(folder)
    assert index.shard_of == json.loads((folder / INDEX).read_text())["weight_map"]
    assert set(index.shard_of) == set(checkpoints.qwen3().tensors)
    assert index.config == checkpoints.QWEN3
    shards = list(folder.glob("*.safetensors"))
    assert len(shards) == 2
    assert index.total_bytes() == sum(shard.stat().st_size for shard in shards)


def test_entries_are_what_the_headers_say(folder: Path) -> None:
    index = open_index(folder)
    name = "model.layers.0.mlp.gate.weight"
    entries, findings = entries_of(index, [name, name, "absent"])
    assert findings == []
    expected = (checkpoints.EXPERTS, checkpoints.HIDDEN)
    assert entries == {name: Entry(name, index.shard_of[name], "BF16", expected)}


def test_a_checkpoint_of_one_file_needs_no_index(folder: Path) -> None:
    sample = checkpoints.qwen3()
    (folder / INDEX).unlink()
    sample.write(folder, shards=1)
    (folder / INDEX).unlink()
    (folder / "model-00001-of-00001.safetensors").rename(folder / SINGLE)
    index = open_index(folder)
    assert set(index.shard_of) == set(sample.tensors)
    assert index.place.file.endswith(SINGLE)


def test_shards_may_be_links(folder: Path, tmp_path: Path) -> None:
    """As in the cache of a hub: names lead to blobs elsewhere."""
    for shard in folder.glob("*.safetensors"):
        shard.rename(tmp_path / f"blob-{shard.name}")
        shard.symlink_to(tmp_path / f"blob-{shard.name}")
    index = open_index(folder)
    assert entries_of(index, index.shard_of)[1] == []


@pytest.mark.parametrize(
    "shard",
    ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "model.bin", ".hidden.safetensors",
     "a\\b.safetensors", "model\n.safetensors", "model.safetensors\n"],
)  # fmt: skip
def test_a_shards_name_that_is_a_path_is_refused(shard: str, folder: Path) -> None:
    content = json.loads((folder / INDEX).read_text())
    content["weight_map"]["model.layers.0.mlp.gate.weight"] = shard
    (folder / INDEX).write_text(json.dumps(content))
    assert [fault[:2] for fault in faults(folder)] == [("shard-name", INDEX)]


def test_each_bad_name_is_told_once(folder: Path) -> None:
    names = {f"t{n}": ("../a.safetensors" if n % 2 else "../b.safetensors") for n in range(10)}
    (folder / INDEX).write_text(json.dumps({"weight_map": names}))
    assert len(faults(folder)) == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[]", b"7", b'{"weight_map": []}', b'{"weight_map": {"a": 7}}', b"{}", b"[" * 100_000],
)
def test_an_index_that_is_none_is_refused(content: bytes, folder: Path) -> None:
    (folder / INDEX).write_bytes(content)
    assert [fault[:2] for fault in faults(folder)] == [("unreadable-checkpoint", INDEX)]


def test_all_that_is_wrong_is_told(folder: Path) -> None:
    (folder / INDEX).write_text("{")
    (folder / CONFIG).unlink()
    assert [fault[1] for fault in faults(folder)] == [CONFIG, INDEX]


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    assert [fault[1:] for fault in faults(tmp_path)] == [
        (CONFIG, "there is no such file"),
        (INDEX, "there is no such file"),
    ]


def test_an_index_beyond_the_limit_is_not_read(folder: Path) -> None:
    os.truncate(folder / INDEX, (256 << 20) + 1)
    assert faults(folder) == [("unreadable-checkpoint", INDEX, "the file has more than 256 MiB")]


@pytest.mark.parametrize("size", [0, 4, 100])
def test_a_shard_that_is_cut_off_is_found(size: int, folder: Path) -> None:
    index = open_index(folder)
    shard = index.shard_of["model.layers.0.mlp.gate.weight"]
    os.truncate(folder / shard, size)
    entries, (finding,) = entries_of(index, index.shard_of)
    assert (finding.rule.name, finding.place.file) == ("unreadable-checkpoint", str(folder / shard))
    assert {entry.shard for entry in entries.values()} == set(index.shard_of.values()) - {shard}


def test_a_shard_without_its_last_byte_is_found(folder: Path) -> None:
    index = open_index(folder)
    shard = folder / index.shard_of["model.layers.0.mlp.gate.weight"]
    os.truncate(shard, shard.stat().st_size - 1)
    (finding,) = entries_of(index, index.shard_of)[1]
    assert finding.rule.name == "unreadable-checkpoint"


def test_a_shard_that_is_not_there_or_no_file_is_found(folder: Path) -> None:
    index = open_index(folder)
    one, other = sorted(set(index.shard_of.values()))
    (folder / one).unlink()
    (folder / other).unlink()
    os.mkfifo(folder / other)
    entries, findings = entries_of(index, index.shard_of)
    assert not entries
    assert {Path(finding.place.file).name for finding in findings} == {one, other}


def test_a_tensor_that_its_shard_lacks_is_found(folder: Path) -> None:
    content = json.loads((folder / INDEX).read_text())
    shard = next(iter(content["weight_map"].values()))
    content["weight_map"] |= {"ghost": shard, "ghosts": shard}
    (folder / INDEX).write_text(json.dumps(content))
    (finding,) = entries_of(open_index(folder), ["ghost", "ghosts"])[1]
    assert finding.rule.name == "missing-tensor"
    assert finding.message == "the index says that it has `ghost` and 1 more"


def test_a_fingerprint_changes_with_what_it_names(folder: Path) -> None:
    index = open_index(folder)
    shards = sorted(set(index.shard_of.values()))
    before = index.fingerprint(shards)
    assert index.fingerprint(reversed(shards)) == before
    assert index.fingerprint(shards[:1]) != before
    os.utime(folder / shards[0], (1, 1))
    assert index.fingerprint(shards) != before
    assert open_index(folder).fingerprint(shards[1:]) == index.fingerprint(shards[1:])
    (folder / CONFIG).write_text("{}")
    assert open_index(folder).fingerprint(shards[1:]) != index.fingerprint(shards[1:])


def test_a_fingerprint_tells_tensors_that_changed_places_in_a_shard_of_the_same_size_and_time(folder: Path) -> None:
    index = open_index(folder)
    shard = sorted(set(index.shard_of.values()))[0]
    before, stat, content = index.fingerprint([shard]), index.path(shard).stat(), index.path(shard).read_bytes()
    exchanged = content.replace(b"up_proj", b"UP_PROJ", 1)
    assert exchanged != content
    index.path(shard).write_bytes(exchanged)
    os.utime(index.path(shard), ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert index.path(shard).stat().st_mtime_ns == stat.st_mtime_ns
    assert index.fingerprint([shard]) != before
