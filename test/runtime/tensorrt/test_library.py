"""Which TensorRT is used, and how a missing, old or broken one is refused."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runtime.tensorrt.fake_tensorrt import VERSIONS, Crash, make_fake

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.tensorrt.library import RTX, TENSORRT, Library, load_library, remedy

ROOT = Path(__file__).parents[3]
OURS = "class ILogger:\n    def __init__(self): pass\n"


def load(folder: Path, name: str | None, modules: dict[str, str]) -> str:
    """What a new process gets from `load_library` when these modules are all the TensorRT there is."""
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
    code = f"""
        import sys
        sys.path.insert(0, {str(folder)!r})
        from efftam_ros.runtime.tensorrt.library import load_library
        try:
            library = load_library({name!r})
            print(library.name, library.version, library is load_library({name!r}))
        except Exception as error:
            print(type(error).__name__, error)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def installed(name: str, version: str = "10.3.0", body: str = OURS) -> dict[str, str]:
    return {name: f"__version__ = {version!r}\n{body}"}


def test_tensorrt_comes_before_tensorrt_rtx_and_is_one_object_per_process(tmp_path: Path) -> None:
    both = installed("tensorrt") | installed("tensorrt_rtx", "1.7.1.116")
    assert load(tmp_path, None, both) == "tensorrt (10, 3, 0) True"
    assert load(tmp_path, RTX, both) == "tensorrt_rtx (1, 7, 1, 116) True"


def test_the_wheels_without_their_short_name_are_found(tmp_path: Path) -> None:
    assert load(tmp_path, None, installed("tensorrt_rtx_bindings", "1.7.1.116")).startswith(
        "tensorrt_rtx (1, 7"
    )
    assert load(tmp_path, None, installed("tensorrt_bindings", "11.4.0.106")).startswith("tensorrt (11, 4, 0")


@pytest.mark.parametrize("name", [TENSORRT, RTX])
def test_a_missing_library_is_refused_with_what_to_install(tmp_path: Path, name: str) -> None:
    if _real(name):
        pytest.skip(f"{name} is installed here")
    text = load(tmp_path, name, {})
    assert text.startswith(f"BackendError {name} is not installed")
    assert text.endswith(remedy(name))
    assert "\n" not in text


def test_a_folder_of_that_name_is_not_taken_for_the_library(tmp_path: Path) -> None:
    if _real(TENSORRT):
        pytest.skip("TensorRT is installed here")
    (tmp_path / "tensorrt").mkdir()
    assert "is not installed" in load(tmp_path, TENSORRT, {})


@pytest.mark.parametrize("version", ["8.6.2", "9.3.0"])
def test_a_library_older_than_10_is_refused_with_its_version(tmp_path: Path, version: str) -> None:
    text = load(tmp_path, None, installed("tensorrt", version))
    assert text.startswith(f"BackendError tensorrt {version} is too old: 10.0 or newer is needed; ")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ImportError('libnvinfer.so.10: cannot open shared object file')", "libnvinfer.so.10"),
        ("raise OSError('libcudart.so.12: cannot\\n open')", "libcudart.so.12: cannot open"),
        ("", "no version or no logger"),
    ],
)
def test_a_broken_library_is_refused_with_its_own_words(tmp_path: Path, body: str, said: str) -> None:
    text = load(tmp_path, None, {"tensorrt": body} | installed("tensorrt_rtx", "1.7"))
    assert text.startswith("BackendError tensorrt is ")  # and tensorrt_rtx is not taken in silence
    assert said in text
    assert "\n" not in text


def test_an_unknown_name_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="choose tensorrt or tensorrt_rtx"):
        load_library("openvino")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_version_is_accepted(version: str) -> None:
    module = make_fake(version)
    library = Library.of(module, RTX if version.startswith("rtx-") else TENSORRT)
    assert library.dotted == version.removeprefix("rtx-")
    assert ("SM86" in library.targets) == version.startswith("rtx-")


def test_the_logger_keeps_errors_and_warnings_and_drops_the_rest(library: Library) -> None:
    severity = library.module.ILogger.Severity
    library.logger.log(severity.ERROR, "first\n  fault")
    position = library.log.position
    for level in sorted(severity):
        library.logger.log(level, f"a {level.name}")
    assert library.log.errors() == ["first fault", "a INTERNAL_ERROR", "a ERROR"]
    assert library.log.errors(position) == ["a INTERNAL_ERROR", "a ERROR"]
    assert library.log.warnings() == ["a WARNING"]
    assert library.log.reason(position) == "a INTERNAL_ERROR; a ERROR"


def test_the_log_of_a_long_life_stays_small_and_keeps_the_latest(library: Library) -> None:
    for number in range(1000):
        library.log.add("ERROR", str(number))
    assert len(library.log.errors()) == 200
    assert library.log.errors(since=999) == ["999"]


def test_loading_makes_no_runtime_and_no_builder(trt: Any) -> None:
    trt.fake.driver = False
    library = Library.of(trt, RTX if trt.fake.rtx else TENSORRT)
    with pytest.raises(Crash):  # what it would have been
        trt.Runtime(library.logger)


def test_nothing_but_an_opened_gpu_counts_as_proof_of_a_driver(library: Library, facts: DeviceFacts) -> None:
    library.require_device(facts)
    for no_proof in (None, True, 0, {"name": "Orin"}):
        with pytest.raises(TypeError, match="call open_device first"):
            library.require_device(no_proof)  # type: ignore[arg-type]


@pytest.mark.parametrize("capability", [(8, 7), (9, 0), (11, 0)])
def test_tensorrt_rtx_refuses_gpus_that_it_has_no_code_for(
    library: Library, facts: DeviceFacts, capability: tuple[int, int]
) -> None:
    other = replace(facts, name="Orin", compute_capability=capability)
    if library.name == TENSORRT:
        library.require_device(other)
        return
    with pytest.raises(BackendError, match=r"no code for Orin .*it has .*SM86.*; install TensorRT"):
        library.require_device(other)


def _real(name: str) -> bool:
    try:
        load_library(name)
    except BackendError:
        return False
    return True
