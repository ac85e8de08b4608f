"""The table of back ends: what it offers is what node, commands and doctor accept, and nothing else is."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.backends import (
    BACKENDS,
    ENGINES,
    PRECISIONS,
    TABLE,
    Backend,
    PipelineConfig,
    backend_of,
    function_of,
    power_mode,
)
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.tools.common.options import add_backend_arguments

ROOT = Path(__file__).parents[2]
every_row = pytest.mark.parametrize("row", TABLE, ids=BACKENDS)
FORMER_NAMES = {"tensorrt-int8": ("tensorrt", "int8")}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_backend_arguments(parser)
    return parser


@every_row
class TestEveryRow:
    def test_names_a_function_that_opens_it(self, row: Backend) -> None:
        assert callable(function_of(row))

    def test_is_a_value_of_the_command_line_option(self, row: Backend) -> None:
        assert options().parse_args(["--backend", row.name]).backend == row.name

    def test_offers_its_precisions_and_refuses_the_others_in_one_line(self, row: Backend) -> None:
        assert set(row.precisions) < set(PRECISIONS)
        assert row.resolved("auto") == row.auto
        for precision in set(PRECISIONS) - {"auto", *row.precisions}:
            with pytest.raises(InputError) as refusal:
                open_pipeline(PipelineConfig(backend=row.name, precision=precision))
            text = str(refusal.value)
            offered = ", ".join(["auto", *row.precisions])
            assert text == f"precision '{precision}' is not offered by {row.name}; it offers {offered}"


@pytest.mark.parametrize("name", FORMER_NAMES)
def test_a_precision_in_the_name_is_refused_with_the_two_settings_it_is(name: str) -> None:
    backend, precision = FORMER_NAMES[name]
    line = f"back end '{name}' is not known; give {backend} and the precision {precision}"
    with pytest.raises(argparse.ArgumentError, match=line):
        options().parse_args(["--backend", name])


def test_an_exact_cpu_is_the_same_as_an_automatic_one(shipped: Bundle) -> None:
    open_pipeline(PipelineConfig(threads=1, precision="fp32"), shipped).close()
    assert backend_of("onnxruntime-cpu").variants == ("auto",)
    assert ENGINES.variants == ("auto", "fp32", "int8")


NVPMODEL = (
    "# modes\n< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=10 NAME=MAXN_SUPER >\n"
)


@pytest.mark.parametrize(
    ("status", "modes", "mode"),
    [
        ("pmode:0010", NVPMODEL, "MAXN_SUPER (10)"),
        ("pmode:0000", NVPMODEL, "15W (0)"),
        ("pmode:0001", NVPMODEL, "1"),
        ("pmode:0001", None, "1"),
        ("something else", NVPMODEL, ""),
        (None, NVPMODEL, ""),
    ],
)
def test_the_power_mode_of_a_jetson_is_read_from_its_files(
    status: str | None, modes: str | None, mode: str, tmp_path: Path
) -> None:
    for name, text in (("var/lib/nvpmodel/status", status), ("etc/nvpmodel.conf", modes)):
        if text is not None:
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_text(text)
    assert power_mode(tmp_path) == mode


@pytest.mark.parametrize(
    ("files", "platform"),
    [
        ({}, "cuda13"),
        ({"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64  535.104.05  Sat"}, "cuda12"),
        ({"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open  580.65.06  Sun"}, "cuda13"),
        ({"etc/nv_tegra_release": "# R36 (release), REVISION: 4.3"}, "jetpack6"),
        ({"etc/nv_tegra_release": "# R35 (release), REVISION: 6.1"}, "jetpack6"),
        (
            {"proc/device-tree/compatible": "nvidia,tegra234", "proc/sys/kernel/osrelease": "5.15.148-tegra"},
            "jetpack6",
        ),
        (
            {"proc/device-tree/compatible": "nvidia,tegra264", "proc/sys/kernel/osrelease": "6.8.12-tegra"},
            "jetpack7",
        ),
        (
            {"proc/device-tree/compatible": "nvidia,tegra194", "proc/sys/kernel/osrelease": "5.10.104-tegra"},
            "jetpack6",
        ),
        ({"etc/nv_tegra_release": "# R38 (release), REVISION: 2.0"}, "jetpack7"),
    ],
)
@every_row
def test_the_command_fits_the_machine(
    row: Backend, files: dict[str, str], platform: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert row.install.here(tmp_path) == getattr(row.install, platform)
