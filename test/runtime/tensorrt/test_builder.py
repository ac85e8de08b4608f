"""What a build gives TensorRT, and how it ends where it can't end well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
from runtime.tensorrt.fake_tensorrt import VERSIONS, header_of, make_fake
from support.rtx_layers import rtx_library

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime.bundle import Tensor, default_bundle
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.tensorrt.engine_set import ShapeRange, profiles_of
from efftam_ros.runtime.tensorrt.library import Library
from efftam_workshop.export.tensorrt.builder import BuildCancelledError, build_engine, timing_cache_path

ROOT = Path(__file__).parents[3]
GRAPHS = default_bundle().graphs
POINTS = (
    ShapeRange("points", (1, 1, 2), (1, 1, 2), (1, 256, 2)),
    ShapeRange("labels", (1, 1), (1, 1), (1, 256)),
)


@pytest.fixture(scope="module")
def decoder() -> onnx.ModelProto:
    return onnx.load(GRAPHS["mask_decoder"].path)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_build_asks_for_is_the_same_in_every_version(version: str, decoder: onnx.ModelProto) -> None:
    library = Library.of(make_fake(version))
    header = header_of(build_engine(library, decoder))
    assert header["strong"] is (library.version >= (10, 6)), "the graph's types decide, never the builder's"
    assert not header["tf32"], "FP32 is FP32"
    assert header["flags"] == []
    assert header["detailed"]
    assert (header["aux"], header["workspace"]) == (0, 1 << 30)


def test_the_profiles_of_a_bundle_follow_from_its_table_and_reach_the_engine(library: Library) -> None:
    assert profiles_of(GRAPHS["prompt_encoder"].inputs) == POINTS
    assert profiles_of(GRAPHS["mask_decoder"].inputs) == ()
    sparse = profiles_of({"sparse": Tensor("float32", (1, "t", 128))})
    assert sparse == (ShapeRange("sparse", (1, 1, 128), (1, 2, 128), (1, 257, 128)),)
    with pytest.raises(InputError, match="axis q of input x has no sizes; known are P, T, n, t"):
        profiles_of({"x": Tensor("float32", ("q",))})
    model = onnx.load(GRAPHS["prompt_encoder"].path)
    header = header_of(build_engine(library, model, profiles=POINTS))
    assert header["profiles"]["points"] == [[1, 1, 2], [1, 1, 2], [1, 256, 2]]
    with pytest.raises(BackendError, match="no optimization profile"):
        build_engine(library, model)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("parse", "can't parse mask_decoder \\(.*NonZeroish: UNSUPPORTED_NODE; In node 7: too large"),
        ("build", "can't build the graph \\(build was told to fail\\)"),
        ("profile", "refused the profile of points, labels \\(profile was told to fail\\)"),
    ],
)
def test_what_tensorrt_refuses_is_told_in_one_line_with_the_errors_since_the_build_began(
    trt: Any, library: Library, decoder: onnx.ModelProto, fault: str, said: str
) -> None:
    library.log.add("ERROR", "of an earlier build")
    trt.fake.faults.add(fault)
    with pytest.raises(BackendError, match=said) as refusal:
        build_engine(library, decoder, profiles=POINTS)
    assert "earlier" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


# Progress and cancelling.


@pytest.mark.parametrize("after", [0, 5, 8])
def test_progress_is_told_each_step_and_ends_the_build_where_it_refuses(
    trt: Any, library: Library, decoder: onnx.ModelProto, tmp_path: Path, after: int
) -> None:
    told: list[tuple[str, int, int]] = []

    def progress(phase: str, step: int, steps: int) -> bool:
        told.append((phase, step, steps))
        return len(told) <= after

    steps = [(phase, step, 4) for phase in ("Building engine", "Timing tactics") for step in range(4)]
    build = partial(build_engine, library, decoder, progress=progress, timing_cache=tmp_path / "times")
    if after == len(steps):
        build()
    else:
        with pytest.raises(BuildCancelledError):
            build()
    assert told == steps[: after + 1]
    assert len(trt.fake.built) == len(list(tmp_path.iterdir())) == (after == len(steps))


@pytest.mark.parametrize("error", [KeyError("bar"), KeyboardInterrupt(), SystemExit(3)])
def test_what_progress_raises_ends_the_build_and_is_raised(
    trt: Any, library: Library, decoder: onnx.ModelProto, error: BaseException
) -> None:
    def progress(phase: str, step: int, count: int) -> bool:
        raise error

    with pytest.raises(type(error)) as raised:
        build_engine(library, decoder, progress=progress)
    assert raised.value is error
    assert trt.fake.built == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("raises", [True, False])
def test_a_signal_ends_a_build_at_its_next_step_and_its_handler_is_called(
    trt: Any, library: Library, decoder: onnx.ModelProto, number: signal.Signals, raises: bool
) -> None:
    steps: list[int] = []
    handled: list[int] = []

    def at_step(step: int) -> None:
        steps.append(step)
        if len(steps) == 3:
            os.kill(os.getpid(), number)

    def handler(number: int, frame: object) -> None:
        handled.append(number)
        if raises:
            raise KeyboardInterrupt

    trt.fake.at_step = at_step
    before = signal.signal(number, handler)
    try:
        with pytest.raises(KeyboardInterrupt if raises else BuildCancelledError):
            build_engine(library, decoder)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert (len(steps), handled, trt.fake.built) == (3, [number], [])


# The timing cache.


@pytest.fixture
def cache(library: Library, facts: DeviceFacts, tmp_path: Path) -> Path:
    return timing_cache_path(tmp_path / "engines" / "cache", library, facts)


@pytest.fixture
def reused(library: Library, decoder: onnx.ModelProto, cache: Path) -> Callable[[], bool]:
    return lambda: header_of(build_engine(library, decoder, timing_cache=cache))["reused_times"]


def test_a_second_build_knows_the_times_of_the_first(
    library: Library, cache: Path, reused: Callable[[], bool]
) -> None:
    assert [reused(), reused()] == [False, True]
    board = "Fake-GPU-compute-capability-8-6-16-multiprocessors-8-GiB"
    assert [path.name for path in cache.parent.iterdir()] == [f"timing-{board}-{library.dotted}.cache"]


@pytest.mark.parametrize("content", [b"", b"\0garbage", b'{"home": "10.0 Other GPU", "times": ["a"]}'])
def test_a_damaged_or_foreign_timing_cache_is_made_anew_with_a_warning(
    library: Library, cache: Path, reused: Callable[[], bool], content: bytes
) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_bytes(content)
    assert not reused()
    told = [text for text in library.log.warnings() if "timing cache" in text]
    assert bool(told) == bool(content)
    assert reused()


def test_a_timing_cache_that_can_not_be_written_costs_a_warning_not_the_engine(
    library: Library, decoder: onnx.ModelProto, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert build_engine(library, decoder, timing_cache=tmp_path / "file" / "times")
    assert "can't be written" in library.log.warnings()[-1]


# The real compiler.


def test_the_real_compiler_ends_a_build_that_is_cancelled() -> None:
    steps: list[int] = []

    def progress(phase: str, step: int, count: int) -> bool:
        steps.append(step)
        return len(steps) < 20

    with pytest.raises(BuildCancelledError):
        build_engine(rtx_library(), onnx.load(GRAPHS["image_encoder"].path), progress=progress)
    assert len(steps) == 20


def test_ctrl_c_ends_the_real_compiler() -> None:
    rtx_library()
    code = f"""
        import sys
        sys.path.insert(0, "test")
        import onnx
        from support.rtx_layers import rtx_library
        from efftam_workshop.export.tensorrt.builder import build_engine
        library, steps = rtx_library(), []
        model = onnx.load({str(GRAPHS["mask_decoder"].path)!r})
        def progress(phase, step, count):
            steps.append(step)
            if len(steps) == 10:
                print("building", flush=True)
            return True
        try:
            while True:
                build_engine(library, model, progress=progress)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in the background
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "building\n"
    child.send_signal(signal.SIGINT)
    answer, _ = child.communicate(timeout=60)
    assert (answer, child.returncode) == ("interrupted\n", 0)
