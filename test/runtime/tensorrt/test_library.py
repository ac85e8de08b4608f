"""Which TensorRT is used, and how a missing, old or broken one is refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from efftam_ros.runtime.tensorrt.library import Library, remedy

ROOT = Path(__file__).parents[3]
OURS = "class ILogger:\n    def __init__(self): pass\n"


def load(folder: Path, modules: dict[str, str]) -> str:
    """What a new process gets from `load_library` when these modules are all the TensorRT there is."""
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
    code = f"""
        import sys
        sys.path.insert(0, {str(folder)!r})
        from efftam_ros.runtime.tensorrt.library import load_library
        try:
            library = load_library()
            print(library.module.__name__, library.version, library is load_library())
        except Exception as error:
            print(type(error).__name__, error)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("name", ["tensorrt", "tensorrt_bindings"])
def test_it_is_found_by_both_names_and_is_one_object_per_process(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, {name: f"__version__ = '11.4.0.106'\n{OURS}"}) == f"{name} (11, 4, 0, 106) True"


@pytest.mark.parametrize("is_folder", [False, True])
def test_where_it_is_missing_the_remedy_is_to_install_it(tmp_path: Path, is_folder: bool) -> None:
    """Python takes a folder of its name for a package. TensorRT-RTX is no TensorRT."""
    spec = importlib.util.find_spec("tensorrt")
    if spec is not None and spec.origin is not None:
        pytest.skip("TensorRT is installed here")
    if is_folder:
        (tmp_path / "tensorrt").mkdir()
    text = load(tmp_path, {"tensorrt_rtx": f"__version__ = '11.4.0'\n{OURS}"})
    assert text.startswith("BackendError TensorRT is not installed")
    assert text.endswith(remedy())
    assert "\n" not in text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"__version__ = '9.3.0'\n{OURS}", "9.3.0 is too old: 10.0 or newer is needed; "),
        ("raise ImportError('libnvinfer.so.10: cannot open shared object file')", "libnvinfer.so.10"),
        ("raise OSError('libcudart.so.12: cannot\\n open')", "libcudart.so.12: cannot open"),
        ("", "no version or no logger"),
    ],
)
def test_an_old_or_broken_library_is_refused_with_its_own_words(tmp_path: Path, body: str, said: str) -> None:
    text = load(tmp_path, {"tensorrt": body})
    assert text.startswith("BackendError TensorRT ")
    assert said in text
    assert "\n" not in text


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
