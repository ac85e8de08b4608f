"""`efftam doctor`: one page that is true of this machine, and of machines made up of files."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tools_helpers import CAPTURED, ROOT, driver_module

from efftam_ros.runtime.pipeline import BACKENDS, DEFAULT_BACKEND
from efftam_ros.tools.doctor import ros
from efftam_ros.tools.doctor.backends import backend_findings
from efftam_ros.tools.doctor.command import page
from efftam_ros.tools.doctor.finding import Finding
from efftam_ros.tools.doctor.gpu import gpu_findings
from efftam_ros.tools.doctor.gpu_facts import CUDA_LIBRARIES, Facts, OnnxRuntime, gather
from efftam_ros.tools.doctor.install import install_line
from efftam_ros.tools.doctor.isolated import ask
from efftam_ros.tools.doctor.system import Platform, System, platform_of

DESKTOP = Platform("desktop", "x86_64")
GPU_BACKENDS = ("onnxruntime-cuda", "onnxruntime-tensorrt", "tensorrt", "torch-cuda")
LOADS: Mapping[str, str] = dict.fromkeys(
    [*CUDA_LIBRARIES[12], *CUDA_LIBRARIES[13], "libnvinfer.so.10", "libnvinfer.so.11"], ""
)
# A desktop on which everything fits.
COMPLETE = Facts(
    platform=DESKTOP,
    smi=("NVIDIA Test 3000, 580.1, 8192 MiB, 8.6",),
    kernel_driver="580.1",
    cuda=13000,
    bindings="12.9.10",
    onnxruntime=OnnxRuntime("1.31.1", "13.0", ("CPU", "CUDA", "TensorRT"), ("onnxruntime-gpu",)),
    libraries=LOADS,
    tensorrt="10.13.0",
    torch="2.9.0",
    torch_cuda="13.0",
)
BARE = Facts(platform=DESKTOP)


@pytest.fixture
def machine(tmp_path: Path):
    """Makes a System of files: {"etc/nv_tegra_release": text, ...}; programs go to bin, packages to site."""

    def make(files: Mapping[str, str] | None = None, **variables: str) -> System:
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        return System(
            root=tmp_path,
            environment={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **variables},
            packages=[str(tmp_path / "site")],
            machine="x86_64",
        )

    return make


def by_name(findings) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


# --- this machine -------------------------------------------------------------------------------------------


def test_the_page_names_what_runs_and_mends_what_does_not(efftam):
    result = efftam("doctor")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) < 80
    assert any("python" in line and platform.python_version() in line for line in lines)
    assert lines[-1] == f"The default back end ({DEFAULT_BACKEND}) can run here."
    for mark, following in itertools.pairwise(lines):
        if mark.strip().startswith(("--", "!!")):
            assert following.strip().startswith("->"), f"no remedy for: {mark}"
    assert "works" not in result.stdout
    assert "compiled in: CPU" in result.stdout


def test_json_has_every_back_end(efftam):
    report = json.loads(efftam("doctor", "--json").stdout)
    assert report["runs"] is True
    backends = {f["name"]: f for f in report["findings"] if f["section"] == "back ends"}
    assert list(backends) == list(BACKENDS)
    assert backends[DEFAULT_BACKEND]["state"] == "ok"
    for finding in backends.values():
        assert finding["state"] == "ok" or (finding["found"] and finding["remedy"])
    assert {f["name"]: f["found"] for f in report["findings"]}["numpy"] == np.__version__


def test_a_damaged_package_is_found_out(tmp_path: Path):
    shutil.copytree(
        ROOT / "efftam_ros", tmp_path / "efftam_ros", ignore=shutil.ignore_patterns("__pycache__")
    )
    next((tmp_path / "efftam_ros" / "models").rglob("mask_decoder*.onnx")).unlink()
    result = subprocess.run(
        [sys.executable, "-m", "efftam_ros", "doctor"], cwd=tmp_path, timeout=100, **CAPTURED
    )
    assert result.returncode == 1, result.stderr
    assert "mask_decoder" in result.stdout
    assert "is missing" in result.stdout
    assert "can NOT run" in result.stdout


# --- which machine it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "kind", "words"),
    [
        ("# R35 (release), REVISION: 5.0, GCID: 1", "old JetPack", "L4T 35.5.0"),
        ("# R36 (release), REVISION: 3.0, GCID: 1", "JetPack 6", "JetPack 6.0"),
        ("# R36 (release), REVISION: 4.3, GCID: 1", "JetPack 6", "6.1 or 6.2 (L4T 36.4.3)"),
        ("# R38 (release), REVISION: 2.0, GCID: 1", "JetPack 7", "7.0 or 7.1"),
        ("# R39 (release), REVISION: 2.0, GCID: 1", "JetPack 7", "7.2 or newer"),
        ("something else", "old JetPack", "unknown release: something else"),
    ],
)
def test_a_jetson_is_known_by_its_release_file(machine, release: str, kind: str, words: str):
    found = platform_of(
        machine(
            {
                "etc/nv_tegra_release": release + "\nmore",
                "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
            }
        )
    )
    assert found.kind == kind
    assert words in found.text
    if kind != "old JetPack":
        assert found.board == "Orin"
        assert found.text.endswith("NVIDIA Jetson AGX Orin Developer Kit")


def test_anything_else_is_a_desktop(machine):
    assert platform_of(machine()) == DESKTOP


def test_an_old_jetpack_is_wrong():
    facts = dataclasses.replace(BARE, platform=Platform("old JetPack", "JetPack (L4T 35.5.0)"))
    assert by_name(gpu_findings(facts))["Jetson"].state == "wrong"


def test_a_jetson_is_named_and_a_desktop_is_not_called_one():
    facts = dataclasses.replace(BARE, platform=Platform("JetPack 6", "JetPack 6.1", "Orin"))
    found = by_name(gpu_findings(facts))["Jetson"]
    assert (found.state, found.found) == ("ok", "JetPack 6.1")
    assert "Jetson" not in by_name(gpu_findings(BARE))


# --- what is gathered ---------------------------------------------------------------------------------------

DRIVER = driver_module(12060, (8, 7), "Orin")


def test_driver_and_gpus_are_read_where_they_stand(machine, tmp_path: Path):
    facts = gather(
        machine(
            {
                "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05\n",
                "bin/nvidia-smi": "#!/bin/sh\necho 'NVIDIA Test 3000, 535.104.05, 8192 MiB, 8.6'\n",
                "fake/cuda/bindings/__init__.py": "",
                "fake/cuda/bindings/driver.py": DRIVER,
            },
            PYTHONPATH=str(tmp_path / "fake"),
        )
    )
    assert facts.kernel_driver == "535.104.05"
    assert facts.smi == ("NVIDIA Test 3000, 535.104.05, 8192 MiB, 8.6",)
    assert (facts.cuda, facts.cuda_text, facts.driver_problem) == (12060, "12.6", "")
    assert facts.gpus == ("Orin, compute capability 8.7",)
    found = by_name(gpu_findings(facts))
    assert found["NVIDIA driver"].found == "535.104.05, supports CUDA 12.6"
    assert found["NVIDIA GPU"].found == facts.smi[0]


def test_a_driver_that_does_not_start_is_wrong(machine, tmp_path: Path):
    broken = DRIVER.replace("def cuInit(flags): return (0,)", "def cuInit(flags): return (999,)")
    files = {"fake/cuda/bindings/__init__.py": "", "fake/cuda/bindings/driver.py": broken}
    finding = by_name(gpu_findings(gather(machine(files, PYTHONPATH=str(tmp_path / "fake")))))[
        "NVIDIA driver"
    ]
    assert finding.state == "wrong"
    assert "cuInit answers error 999" in finding.found


def test_nvidia_smi_that_fails_is_quoted(machine):
    facts = gather(
        machine({"bin/nvidia-smi": "#!/bin/sh\necho 'Driver/library version mismatch' >&2\nexit 18\n"})
    )
    finding = by_name(gpu_findings(facts))["nvidia-smi"]
    assert (finding.state, finding.found) == ("wrong", "Driver/library version mismatch")
    assert "reboot" in finding.remedy


def test_onnxruntime_is_read_without_importing_it(machine, tmp_path: Path):
    capi = "site/onnxruntime/capi"
    facts = gather(
        machine(
            {
                "site/onnxruntime/__init__.py": "raise SystemExit('imported')",
                f"{capi}/build_and_package_info.py": "package_name = 'onnxruntime-gpu'\n"
                "__version__ = '1.26.0'\ncuda_version = '12.8'\n",
                f"{capi}/libonnxruntime_providers_cuda.so": "",
                "site/onnxruntime_gpu-1.26.0.dist-info/METADATA": "Name: onnxruntime-gpu\nVersion: 1.26.0\n",
                "site/torch/__init__.py": "raise SystemExit('imported')",
                "site/torch/version.py": "__version__ = '2.9.0'\ncuda = '12.6'\n",
                "site/cuda_bindings-13.4.4.dist-info/METADATA": "Name: cuda-bindings\nVersion: 13.4.4\n",
                "site/nvidia/cudnn/lib/libcudnn.so.9": "not a library",
            }
        )
    )
    assert facts.onnxruntime == OnnxRuntime("1.26.0", "12.8", ("CPU", "CUDA"), ("onnxruntime-gpu",))
    assert (facts.torch, facts.torch_cuda, facts.bindings) == ("2.9.0", "12.6", "13.4.4")
    found = list(gpu_findings(facts))
    assert by_name(found)["onnxruntime"].found == "1.26.0, for CUDA 12.8; compiled in: CPU, CUDA"
    lines = [
        finding.found for finding in found if finding.name == "CUDA libraries" and finding.state == "wrong"
    ]
    assert any(line.startswith("libcudnn.so.9: ") and "too short" in line for line in lines)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_libraries_load_from_pip_packages_or_take_only_their_own_process_down(machine, tmp_path: Path):
    system = machine(
        {
            "good.c": "int answer(void) { return 42; }",
            "bad.c": "#include <stdlib.h>\n__attribute__((constructor)) static void fall(void) { abort(); }",
        }
    )
    wheels = tmp_path / "site" / "nvidia"
    for source, name in (("good", "cublas/lib/libcublas.so.12"), ("bad", "cudnn/lib/libcudnn.so.9")):
        (wheels / name).parent.mkdir(parents=True)
        subprocess.run(["cc", "-shared", "-o", wheels / name, tmp_path / f"{source}.c"], check=True)
    names = ("libcublas.so.12", "libcudnn.so.9", "libcublas.so.12", "libnowhere.so.1")
    requests = [["load", name, [str(path) for path in system.wheel_libraries(name)]] for name in names]
    first, crashed, again, absent = ask(system, requests, 30)
    assert first == again == {"from": str(wheels / "cublas/lib/libcublas.so.12")}
    assert "SIGABRT" in crashed["fault"]
    assert "libnowhere.so.1" in absent["problem"]


def test_a_back_end_that_takes_too_long_is_called_untried(machine):
    system = System()
    (finding,) = backend_findings(system, BARE, [DEFAULT_BACKEND])
    assert finding.state == "ok"
    (answer,) = ask(system, [["open", DEFAULT_BACKEND]], 0.01)
    assert answer["slow"]
    assert "0.01 s" in answer["fault"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_back_end_is_named_on_a_terminal_while_it_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    shown = []

    def answers(*_: object):
        shown.append(terminal.getvalue())
        yield {"runs": "one frame"}

    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("efftam_ros.tools.doctor.backends.ask", answers)
    list(backend_findings(System(), BARE, [DEFAULT_BACKEND]))
    assert DEFAULT_BACKEND in shown[0]
    assert "60 s" in shown[0]


def test_without_a_driver_it_comes_before_any_package(monkeypatch: pytest.MonkeyPatch):
    missing = {"reason": "cuda-bindings can't be imported", "remedy": "pip install cuda-bindings"}
    monkeypatch.setattr(
        "efftam_ros.tools.doctor.backends.ask", lambda *arguments: (missing for _ in range(2))
    )
    names = ["onnxruntime-cuda", "onnxruntime-cuda-fp32"]
    for facts, is_first in ((BARE, True), (dataclasses.replace(COMPLETE, bindings=""), False)):
        for finding in backend_findings(System(), facts, names):
            assert finding.remedy.startswith("install NVIDIA's driver") is is_first
            assert ("cuda-bindings" in finding.remedy) is not is_first


def test_a_fault_of_a_back_end_does_not_hide_the_next(machine, tmp_path: Path):
    """onnxruntime that can't be imported at all: TensorRT still answers for itself."""
    files = {"fake/onnxruntime/__init__.py": "raise RuntimeError('wrong\\nlibrary')"}
    system = machine(files, PYTHONPATH=str(tmp_path / "fake"))
    found = by_name(backend_findings(system, BARE))
    assert list(found) == list(BACKENDS)
    assert found[DEFAULT_BACKEND].state == "wrong"
    assert "RuntimeError: wrong library" in found[DEFAULT_BACKEND].found
    assert all(finding.remedy for finding in found.values() if finding.state != "ok")
    assert "wrong library" not in found["tensorrt"].found


# --- what is concluded --------------------------------------------------------------------------------------


def test_where_everything_fits_nothing_is_to_be_installed():
    assert {finding.state for finding in gpu_findings(COMPLETE)} == {"ok"}
    assert [install_line(COMPLETE, backend) for backend in GPU_BACKENDS] == [""] * 4


def test_a_cpu_back_end_never_asks_for_a_driver():
    assert install_line(BARE, "onnxruntime-cpu") == install_line(BARE, "torch") == ""


@pytest.mark.parametrize(
    ("change", "name", "words", "remedy"),
    [
        ({"cuda": 12010}, "NVIDIA driver", "supports CUDA 12.1; needed is 12.2", "535"),
        (
            {"cuda": None, "driver_problem": "no libcuda"},
            "NVIDIA driver",
            "580.1, but no libcuda",
            "--gpus all",
        ),
        ({"cuda": 12080, "bindings": "13.4.4"}, "cuda-bindings", "newer than the driver's CUDA 12.8", "<13"),
        ({"bindings": ""}, "cuda-bindings", "needed by", "cuda-bindings>=12.6,<13"),
        ({"cuda": 12080}, "onnxruntime", "but the driver supports 12.8", "<1.27"),
        ({"cuda": 12080}, "torch", "but the driver supports 12.8", "cu126"),
        ({"torch": "", "torch_cuda": ""}, "torch", "needed by", "cu130"),
        (
            {"libraries": {**LOADS, "libcublas.so.13": "no such file"}},
            "CUDA libraries",
            "libcublas.so.13: no such file",
            "nvidia-cublas",
        ),
        (
            {"libraries": {**LOADS, "libnvinfer.so.10": "absent", "libnvinfer.so.11": "absent"}},
            "TensorRT",
            "module 10.13.0, but absent",
            "tensorrt-cu13",
        ),
        ({"onnxruntime": None}, "onnxruntime", "not installed", "pip install onnxruntime"),
    ],
)
def test_what_does_not_fit_together_is_said_with_its_remedy(change, name: str, words: str, remedy: str):
    found = [f for f in gpu_findings(dataclasses.replace(COMPLETE, **change)) if f.name == name]
    (bad,) = [finding for finding in found if finding.state != "ok"]
    assert words in bad.found
    assert remedy in bad.remedy


def test_two_packages_of_onnxruntime_are_wrong():
    both = OnnxRuntime("1.31.1", "13.0", ("CPU", "CUDA"), ("onnxruntime", "onnxruntime-gpu"))
    finding = by_name(gpu_findings(dataclasses.replace(COMPLETE, onnxruntime=both)))["onnxruntime"]
    assert finding.state == "wrong"
    assert "pip uninstall -y onnxruntime onnxruntime-gpu && pip install" in finding.remedy


def test_tensorrt_11_serves_our_engines_but_not_onnxruntime():
    libraries = {**LOADS, "libnvinfer.so.10": "absent"}
    facts = dataclasses.replace(COMPLETE, libraries=libraries, tensorrt="11.4.1")
    assert "onnxruntime-tensorrt needs libnvinfer.so.10" in by_name(gpu_findings(facts))["TensorRT"].found
    assert install_line(facts, "tensorrt") == ""
    assert install_line(facts, "onnxruntime-tensorrt") == "pip install 'tensorrt-cu13>=10,<11'"


CPU_BUILD = OnnxRuntime("1.31.1", "", ("CPU",), ("onnxruntime",))


@pytest.mark.parametrize(
    ("platform_here", "cuda", "wanted", "unwanted"),
    [
        (DESKTOP, 13000, ["onnxruntime-gpu[cuda,cudnn]>=1.27", "nvidia-cublas"], ["<1.27", "JetPack"]),
        (DESKTOP, 12040, ["onnxruntime-gpu[cuda,cudnn]<1.27", "nvidia-cublas-cu12"], [">=1.27"]),
        (Platform("JetPack 6", "", "Orin"), 12060, ["onnxruntime-gpu", "jp6/cu126"], ["[cuda", "cublas"]),
        (Platform("JetPack 7", "", "Orin"), 13000, ["CMAKE_CUDA_ARCHITECTURES=87:"], ["pip install"]),
        (Platform("JetPack 7", "", "Thor"), 13000, ["CMAKE_CUDA_ARCHITECTURES=110:"], ["pip install"]),
    ],
)
def test_each_platform_has_its_own_install_line(platform_here, cuda: int, wanted, unwanted):
    facts = dataclasses.replace(COMPLETE, platform=platform_here, cuda=cuda, onnxruntime=CPU_BUILD)
    line = install_line(facts, "onnxruntime-cuda")
    assert all(words in line for words in wanted), line
    assert not any(words in line for words in unwanted), line


def test_tensorrt_comes_from_apt_on_a_jetson():
    facts = dataclasses.replace(BARE, platform=Platform("JetPack 6", "", "Orin"), cuda=12060)
    assert "apt install tensorrt" in install_line(facts, "tensorrt")
    assert "--system-site-packages" in install_line(facts, "onnxruntime-tensorrt")
    assert install_line(facts, "torch-cuda").endswith("jp6/cu126")


def test_the_driver_comes_first():
    for backend in GPU_BACKENDS:
        assert install_line(BARE, backend).startswith("install NVIDIA's driver")


def test_commands_that_neighbours_share_are_printed_once():
    same = [Finding("back ends", name, "absent", "no", "why", "pip install x") for name in ("a", "b")]
    lines = list(page([*same, Finding("tools", "c", "ok", "1")]))
    assert [line.strip() for line in lines if "here:" in line] == ["-> here: pip install x"]
    assert lines.index("tools") > next(i for i, line in enumerate(lines) if "here:" in line)


# --- ROS ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "state", "words"),
    [
        ({}, "absent", "not set"),
        ({"FASTRTPS_DEFAULT_PROFILES_FILE": "/nowhere.xml"}, "wrong", "does not exist"),
        ({"FASTRTPS_DEFAULT_PROFILES_FILE": __file__}, "ok", __file__),
        ({"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, "ok", "not used"),
    ],
)
def test_the_fast_dds_profile(monkeypatch: pytest.MonkeyPatch, environment, state: str, words: str):
    for name in ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "RMW_IMPLEMENTATION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    finding = ros.fastdds_profile()
    assert finding.state == state
    assert words in finding.found
