"""Boards, partitions, power limits and clocks, from trees and programs as drivers have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from moeshapes.doctor.cards import Card, cards

MI355X = {
    "simd_count": 1024, "simd_per_cu": 4, "gfx_target_version": 90500, "drm_render_minor": 128,
    "max_engine_clk_fcompute": 2400,
}  # fmt: skip
CPU = {"cpu_cores_count": 96, "simd_count": 0, "gfx_target_version": 0}


def node(sys: Path, number: int, **properties: int) -> None:
    folder = sys / "class" / "kfd" / "kfd" / "topology" / "nodes" / str(number)
    folder.mkdir(parents=True)
    (folder / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))


def device(sys: Path, minor: int, **files: str) -> None:
    """A render node's device; `__` stands for a slash in names."""
    folder = sys / "class" / "drm" / f"renderD{minor}" / "device"
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")


@pytest.fixture
def sys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty /sys, and no programs."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_a_board_is_told_by_sysfs(sys: Path) -> None:
    node(sys, 0, **CPU)
    node(sys, 1, **MI355X)
    device(
        sys, 128, product_name="AMD Instinct MI355X", mem_info_vram_total=str(288 << 30),
        current_compute_partition="SPX", current_memory_partition="NPS1", hwmon__hwmon3__power1_cap="1400000000",
        pp_dpm_sclk="0: 132Mhz *\n1: 1200Mhz\n2: 2400Mhz",
    )  # fmt: skip
    (card,) = cards(sys)
    assert card == Card("gfx950", 256, "AMD Instinct MI355X", 288 << 30, "SPX/NPS1", 1400.0, 132, 2400)
    expected = "AMD Instinct MI355X: gfx950, 256 CUs, 288 GiB, partition SPX/NPS1, limit 1400 W, 132 of 2400 MHz"
    assert str(card) == expected


def test_what_the_driver_does_not_tell_is_left_out(sys: Path) -> None:
    node(sys, 1, **MI355X)
    (card,) = cards(sys)
    assert card == Card("gfx950", 256, max_clock=2400)
    assert str(card) == "a board that has no name here: gfx950, 256 CUs, ? of 2400 MHz"


@pytest.mark.parametrize(
    ("version", "gfx"),
    [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950"), (110501, "gfx1151"), (120500, "gfx1250")],
)
def test_architectures_are_named_as_rows_name_them(version: int, gfx: str, sys: Path) -> None:
    node(sys, 1, **{**MI355X, "gfx_target_version": version})
    assert cards(sys)[0].gfx == gfx


def test_partitions_are_cards_of_their_own_in_the_order_of_nodes(sys: Path) -> None:
    for number in (2, 10, 9):
        node(sys, number, **{**MI355X, "simd_count": 128, "drm_render_minor": 126 + number})
        device(sys, 126 + number, current_compute_partition="CPX", product_name=f"node {number}")
    assert [(card.board, card.cu_num, card.partition) for card in cards(sys)] == [
        ("node 2", 32, "CPX"),
        ("node 9", 32, "CPX"),
        ("node 10", 32, "CPX"),
    ]


def test_trees_that_make_no_sense_are_no_cards(sys: Path) -> None:
    node(sys, 1, simd_count=4)
    node(sys, 2, **{**MI355X, "simd_per_cu": 0})
    nodes = sys / "class" / "kfd" / "kfd" / "topology" / "nodes"
    (nodes / "3").mkdir()
    (nodes / "4").write_text("not a folder")
    (nodes / "5").mkdir()
    (nodes / "5" / "properties").write_bytes(b"simd_count x\n\xff\xfe\nsimd_count -4\n")
    device(sys, 128, pp_dpm_sclk="what?", mem_info_vram_total="much", hwmon__hwmon0__power1_cap="0")
    (card,) = cards(sys)
    assert card == Card("gfx950", 1024, max_clock=2400)


# --- nvidia-smi


def program(sys: Path, script: str) -> None:
    path = sys / "bin" / "nvidia-smi"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_nvidia_smi_is_asked(sys: Path) -> None:
    program(sys, "echo 'NVIDIA H200, 9.0, 143771, Disabled, 700.00, 345, 1980'")
    (card,) = cards(sys)
    assert card == Card("sm_90", 0, "NVIDIA H200", 143771 << 20, "", 700.0, 345, 1980)
    assert str(card) == "NVIDIA H200: sm_90, 140 GiB, limit 700 W, 345 of 1980 MHz"


def test_what_nvidia_smi_has_not_is_left_out(sys: Path) -> None:
    program(sys, "echo 'NVIDIA A100, 8.0, [N/A], Enabled, [Not Supported], [N/A], [N/A]'")
    assert cards(sys) == (Card("sm_80", 0, "NVIDIA A100", 0, "MIG"),)


@pytest.mark.parametrize("script", ["exit 9", "echo NVIDIA-SMI has failed", "echo 'a, b'", "printf '\\377'", "true"])
def test_an_nvidia_smi_that_fails_tells_of_no_card(script: str, sys: Path) -> None:
    program(sys, script)
    assert cards(sys) == ()
