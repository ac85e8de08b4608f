"""What a build gives TensorRT, and how it ends where it can't end well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime.tensorrt.fake_tensorrt import VERSIONS, header_of, make_fake

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime.bundle import Bundle, Tensor
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.tensorrt.engine_set import BuildOptions, ShapeRange, profiles_of
from efftam_ros.runtime.tensorrt.library import RTX, TENSORRT, Library, load_library
from efftam_ros.runtime.tensorrt.store import EngineKey
from efftam_workshop.export.tensorrt.builder import BuildCancelledError, build_engine, timing_cache_path

ROOT = Path(__file__).parents[3]
POINTS = (
    ShapeRange("points", (1, 1, 2), (1, 1, 2), (1, 256, 2)),
    ShapeRange("labels", (1, 1), (1, 1), (1, 256)),
)


def test_what_a_build_asks_for_is_the_same_in_every_version(shipped: Bundle, facts: DeviceFacts) -> None:
    headers = []
    for version in VERSIONS:
        library = Library.of(make_fake(version), RTX if version.startswith("rtx-") else TENSORRT)
        header = header_of(
            build_engine(library, shipped.graphs["mask_decoder"].path, BuildOptions(), device=facts)
        )
        old = library.name == TENSORRT and library.version < (10, 6)
        assert header["strong"] is not old, "the graph's types decide, never the builder's"
        assert not header["tf32"], "FP32 is FP32"
        assert header["flags"] == ["REQUIRE_USER_ALLOCATION"] * (library.name == RTX)
        assert header["detailed"]
        assert header["targets"] == (["SM86"] if library.name == RTX else [])
        headers.append({key: header[key] for key in ("aux", "level", "workspace")})
    assert headers == [{"aux": 0, "level": 3, "workspace": 1 << 30}] * len(VERSIONS)


def test_options_reach_the_builder(library: Library, shipped: Bundle, facts: DeviceFacts) -> None:
    options = BuildOptions(tf32=True, workspace_bytes=1 << 25, optimization_level=5, max_aux_streams=2)
    header = header_of(build_engine(library, shipped.graphs["memory_encoder"].path, options, device=facts))
    assert (header["tf32"], header["workspace"], header["level"], header["aux"]) == (True, 1 << 25, 5, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"precision": "fp16"},
        {"tf32": True},
        {"workspace_bytes": 1 << 29},
        {"optimization_level": 4},
        {"max_aux_streams": 1},
        {"profiles": POINTS[:1]},
        {"profiles": POINTS[::-1]},
        {"target": "SM86"},
    ],
)
def test_every_option_is_a_part_of_the_key(other: dict[str, Any]) -> None:
    def key(options: BuildOptions) -> str:
        return EngineKey(
            "mask_decoder",
            "0" * 64,
            "tensorrt",
            "10.3.0",
            "Orin",
            "8.7",
            8,
            16,
            options.precision,
            options.parts,
        ).hex

    assert key(BuildOptions(profiles=POINTS)) == key(BuildOptions(profiles=POINTS))
    assert key(BuildOptions(profiles=POINTS)) != key(BuildOptions(**{"profiles": POINTS} | other))


def test_graphs_with_weights_beside_them_build_from_their_path_alone(
    library: Library, shipped: Bundle, facts: DeviceFacts
) -> None:
    path = shipped.graphs["memory_attention_fixed"].path
    assert build_engine(library, path, BuildOptions(), device=facts)
    with pytest.raises(BackendError, match="can't parse the graph"):
        build_engine(library, path.read_bytes(), BuildOptions(), device=facts)


def test_a_graph_given_as_bytes_is_built(library: Library, shipped: Bundle, facts: DeviceFacts) -> None:
    assert build_engine(
        library, shipped.graphs["mask_decoder"].path.read_bytes(), BuildOptions(), device=facts
    )


def test_the_profiles_of_a_bundle_follow_from_its_table(shipped: Bundle) -> None:
    assert profiles_of(shipped.graphs["prompt_encoder"].inputs) == POINTS
    assert profiles_of(shipped.graphs["mask_decoder"].inputs) == ()
    sparse = profiles_of({"sparse": Tensor("float32", (1, "t", 128))})
    assert sparse == (ShapeRange("sparse", (1, 1, 128), (1, 2, 128), (1, 257, 128)),)
    with pytest.raises(InputError, match="axis q of input x has no sizes; known are P, T, n, t"):
        profiles_of({"x": Tensor("float32", ("q",))})


def test_profiles_reach_the_engine(library: Library, shipped: Bundle, facts: DeviceFacts) -> None:
    options = BuildOptions(profiles=POINTS)
    header = header_of(build_engine(library, shipped.graphs["prompt_encoder"].path, options, device=facts))
    assert header["profiles"]["points"] == [[1, 1, 2], [1, 1, 2], [1, 256, 2]]


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        (POINTS[:1], r"input labels \(1, -1\) is dynamic and has no profile"),
        ((*POINTS, ShapeRange("clicks", (1,), (1,), (1,))), "a profile for clicks, which is no input"),
        ((*POINTS, ShapeRange("has_mask", (1,), (2,), (3,))), r"\(2,\) of input has_mask does not fit"),
        ((POINTS[0], ShapeRange("labels", (1,), (1,), (9,))), r"\(1,\) of input labels does not fit"),
    ],
)
def test_profiles_that_do_not_fit_the_graph_are_refused(
    library: Library, shipped: Bundle, facts: DeviceFacts, profiles: tuple[ShapeRange, ...], said: str
) -> None:
    path = shipped.graphs["prompt_encoder"].path
    with pytest.raises(InputError, match=said):
        build_engine(library, path, BuildOptions(profiles=profiles), device=facts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"precision": "int4"},
        {"optimization_level": 6},
        {"profiles": (ShapeRange("points", (1, 4, 2), (1, 3, 2), (1, 8, 2)),)},
        {"profiles": (ShapeRange("points", (1, 0, 2), (1, 3, 2), (1, 8, 2)),)},
        {"profiles": (ShapeRange("points", (1, 1), (1, 3, 2), (1, 8, 2)),)},
    ],
)
def test_options_that_can_not_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        BuildOptions(**wrong)


def test_all_errors_of_the_parser_are_told_in_one_line(
    trt: Any, library: Library, shipped: Bundle, facts: DeviceFacts
) -> None:
    trt.fake.faults.add("parse")
    with pytest.raises(BackendError) as refusal:
        build_engine(library, shipped.graphs["mask_decoder"].path, BuildOptions(), device=facts)
    text = str(refusal.value)
    assert "can't parse mask_decoder.onnx" in text
    assert "NonZeroish: UNSUPPORTED_NODE; In node 7: too large" in text
    assert "\n" not in text


def test_a_build_that_gives_nothing_is_told_with_the_errors_since_it_began(
    trt: Any, library: Library, shipped: Bundle, facts: DeviceFacts
) -> None:
    library.log.add("ERROR", "of an earlier build")
    trt.fake.faults.add("build")
    with pytest.raises(BackendError, match=r"can't build the graph \(build was told to fail\)"):
        build_engine(library, shipped.graphs["mask_decoder"].path, BuildOptions(), device=facts)


def test_a_missing_graph_is_refused(library: Library, tmp_path: Path, facts: DeviceFacts) -> None:
    with pytest.raises(InputError, match=r"none\.onnx is not a file"):
        build_engine(library, tmp_path / "none.onnx", BuildOptions(), device=facts)


def test_without_a_gpu_only_tensorrt_rtx_builds_and_only_for_a_named_target(
    trt: Any, library: Library, shipped: Bundle
) -> None:
    trt.fake.driver = False
    path = shipped.graphs["mask_decoder"].path
    with pytest.raises(BackendError, match="needs a GPU whose driver works"):
        build_engine(library, path, BuildOptions())
    if library.name == RTX:
        assert header_of(build_engine(library, path, BuildOptions(target="SM89")))["targets"] == ["SM89"]
        with pytest.raises(InputError, match=r"no target SM87; it has SM\d+"):
            build_engine(library, path, BuildOptions(target="SM87"))
    else:
        with pytest.raises(InputError, match="no target SM86; it has none"):
            build_engine(library, path, BuildOptions(target="SM86"))
    assert trt.fake.built == [header for header in trt.fake.built if header["targets"]]


# Progress and cancelling.


def test_progress_is_told_each_step_of_each_phase(
    library: Library, shipped: Bundle, facts: DeviceFacts
) -> None:
    told: list[tuple[str, int, int]] = []

    def progress(phase: str, step: int, steps: int) -> bool:
        told.append((phase, step, steps))
        return True

    build_engine(library, shipped.graphs["mask_decoder"].path, BuildOptions(), progress, device=facts)
    assert told == [(p, step, 4) for p in ("Building engine", "Timing tactics") for step in range(4)]


@pytest.mark.parametrize("after", [0, 5])
def test_a_build_that_progress_refuses_ends_and_leaves_nothing(
    trt: Any, library: Library, shipped: Bundle, facts: DeviceFacts, tmp_path: Path, after: int
) -> None:
    steps: list[int] = []

    def progress(phase: str, step: int, count: int) -> bool:
        steps.append(step)
        return len(steps) <= after

    path = shipped.graphs["mask_decoder"].path
    with pytest.raises(BuildCancelledError):
        build_engine(library, path, BuildOptions(), progress, facts, tmp_path / "times.cache")
    assert len(steps) == after + 1
    assert trt.fake.built == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyError("bar"), KeyboardInterrupt(), SystemExit(3)])
def test_what_progress_raises_ends_the_build_and_is_raised(
    trt: Any, library: Library, shipped: Bundle, facts: DeviceFacts, error: BaseException
) -> None:
    def progress(phase: str, step: int, count: int) -> bool:
        raise error

    with pytest.raises(type(error)) as raised:
        build_engine(library, shipped.graphs["mask_decoder"].path, BuildOptions(), progress, facts)
    assert raised.value is error
    assert trt.fake.built == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_raises_ends_a_build_at_its_next_step(
    trt: Any, library: Library, shipped: Bundle, facts: DeviceFacts, number: signal.Signals
) -> None:
    steps: list[int] = []

    def at_step(step: int) -> None:
        steps.append(step)
        if len(steps) == 3:
            os.kill(os.getpid(), number)

    trt.fake.at_step = at_step
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            build_engine(library, shipped.graphs["mask_decoder"].path, BuildOptions(), device=facts)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    assert len(steps) == 3
    assert trt.fake.built == []


def test_a_program_that_handles_ctrl_c_itself_keeps_its_handler_and_the_build_is_cancelled(
    trt: Any, library: Library, shipped: Bundle, facts: DeviceFacts
) -> None:
    handled: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: handled.append(number))
    trt.fake.at_step = lambda step: os.kill(os.getpid(), signal.SIGINT) if step == 1 else None
    try:
        with pytest.raises(BuildCancelledError):
            build_engine(library, shipped.graphs["mask_decoder"].path, BuildOptions(), device=facts)
    finally:
        signal.signal(signal.SIGINT, before)
    assert handled == [signal.SIGINT]


# The timing cache.


@pytest.fixture
def build(library: Library, shipped: Bundle, facts: DeviceFacts, tmp_path: Path) -> Callable[[], Any]:
    path = shipped.graphs["mask_decoder"].path
    cache = timing_cache_path(tmp_path / "engines" / "cache", library, facts)
    return lambda: header_of(build_engine(library, path, BuildOptions(), device=facts, timing_cache=cache))


def test_a_second_build_knows_the_times_of_the_first(
    library: Library, build: Callable[[], Any], tmp_path: Path
) -> None:
    assert [build()["reused_times"], build()["reused_times"]] == [False, library.name == TENSORRT]
    files = [path.name for path in tmp_path.rglob("*.*")]
    board = "Fake-GPU-compute-capability-8-6-16-multiprocessors-8-GiB"
    assert files == ([] if library.name == RTX else [f"timing-{board}-{library.dotted}.cache"])


@pytest.mark.parametrize("content", [b"", b"\0garbage", b'{"home": "10.0 Other GPU", "times": ["a"]}'])
def test_a_damaged_or_foreign_timing_cache_is_made_anew_with_a_warning(
    library: Library, facts: DeviceFacts, build: Callable[[], Any], tmp_path: Path, content: bytes
) -> None:
    if library.name == RTX:
        pytest.skip("TensorRT-RTX has no timing cache")
    path = timing_cache_path(tmp_path / "engines" / "cache", library, facts)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert not build()["reused_times"]
    told = [text for text in library.log.warnings() if "timing cache" in text]
    assert bool(told) == bool(content)
    assert build()["reused_times"]


def test_a_timing_cache_that_can_not_be_written_costs_a_warning_not_the_engine(
    library: Library, shipped: Bundle, facts: DeviceFacts, tmp_path: Path
) -> None:
    if library.name == RTX:
        pytest.skip("TensorRT-RTX has no timing cache")
    (tmp_path / "file").write_text("")
    path = shipped.graphs["mask_decoder"].path
    assert build_engine(library, path, BuildOptions(), device=facts, timing_cache=tmp_path / "file" / "times")
    assert "can't be written" in library.log.warnings()[-1]


# The real compiler.


@pytest.fixture(scope="module")
def rtx() -> Library:
    try:
        return load_library(RTX)
    except BackendError as missing:
        pytest.skip(str(missing))


def test_the_real_tensorrt_rtx_builds_every_graph_of_the_shipped_bundle(
    rtx: Library, shipped: Bundle
) -> None:
    for name in (
        "image_encoder",
        "prompt_encoder",
        "memory_attention_fixed",
        "mask_decoder",
        "memory_encoder",
    ):
        graph = shipped.graphs[name]
        steps: list[int] = []

        def progress(phase: str, step: int, count: int, steps: list[int] = steps) -> bool:
            steps.append(step)
            return True

        plan = build_engine(
            rtx, graph.path, BuildOptions(target="SM86", profiles=profiles_of(graph.inputs)), progress
        )
        assert len(plan) > graph.path.stat().st_size / 2
        assert len(steps) > 10


def test_the_real_tensorrt_rtx_says_what_it_can_not_parse(rtx: Library, shipped: Bundle) -> None:
    with pytest.raises(
        BackendError, match=r"can't parse the graph \(.*MODEL_DESERIALIZE_FAILED|Failed to parse"
    ):
        build_engine(rtx, b"no graph", BuildOptions(target="SM86"))


def test_the_real_tensorrt_rtx_ends_a_build_that_is_cancelled(rtx: Library, shipped: Bundle) -> None:
    steps: list[int] = []

    def progress(phase: str, step: int, count: int) -> bool:
        steps.append(step)
        return len(steps) < 20

    with pytest.raises(BuildCancelledError):
        build_engine(rtx, shipped.graphs["image_encoder"].path, BuildOptions(target="SM86"), progress)
    assert len(steps) == 20


def test_ctrl_c_ends_the_real_tensorrt_rtx(rtx: Library, shipped: Bundle) -> None:
    code = f"""
        from pathlib import Path
        from efftam_workshop.export.tensorrt.builder import build_engine
        from efftam_ros.runtime.tensorrt.engine_set import BuildOptions
        from efftam_ros.runtime.tensorrt.library import load_library
        library, steps = load_library("tensorrt_rtx"), []
        def progress(phase, step, count):
            steps.append(step)
            if len(steps) == 10:
                print("building", flush=True)
            return True
        try:
            while True:
                build_engine(library, Path({str(shipped.graphs["mask_decoder"].path)!r}),
                             BuildOptions(target="SM86"), progress)
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
