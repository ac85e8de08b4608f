"""onnxruntime's GPU providers as a graph opener, with a CPU session behind the fake module."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnxruntime
import pytest
from runtime.cuda.fake_cuda import FakeGpu
from runtime.cuda.fake_status import ORIN_NANO, ORIN_NX
from runtime.fake_ort import CPU, CUDA, OUT_OF_MEMORY, TENSORRT, FakeOrt, Faults
from support.bound_graphs import Bound, Device

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime.bundle import Bundle, default_bundle, file_sha256
from efftam_ros.runtime.cuda.api import Cuda, DeviceFacts, open_device
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.onnxruntime import gpu, options
from efftam_ros.runtime.onnxruntime.gpu import _PROBE, OrtGraphs
from efftam_ros.runtime.onnxruntime.graph import OrtGraph
from efftam_ros.runtime.onnxruntime.libraries import first_line

STREAM = 0x7F00_1234_5678
GRAPHS = tuple(default_bundle().graphs)


@pytest.fixture
def fake() -> FakeOrt:
    return FakeOrt()


Opener, Binder = Callable[..., OrtGraphs], Callable[..., Bound]


@pytest.fixture
def opener(shipped: Bundle, fake: FakeOrt) -> Iterator[Opener]:
    made: list[OrtGraphs] = []

    def make(provider: Any = "cuda", **arguments: Any) -> OrtGraphs:
        made.append(OrtGraphs(shipped, provider, STREAM, **{"ort": fake, **arguments}))
        return made[-1]

    yield make
    for graphs in made:
        graphs.close()


@pytest.fixture
def bound(shipped: Bundle) -> Binder:
    """Binds a graph's tensors in the memory of a GPU."""
    cuda = Cuda(FakeGpu().driver)
    open_device(cuda)
    device = Device(cuda, Stream(cuda))

    def make(graph: OrtGraph, fixed: bool = True, seed: int = 0) -> Bound:
        one = Bound(device, graph.binding(fixed), shipped.graphs[graph.name].path, seed)
        one.bind()
        return one

    return make


class TestAFixedBinding:
    @pytest.mark.parametrize(
        ("faults", "reason"),
        [
            (Faults(no_capture=True), "model has control flow nodes"),
            (Faults(capture_fails=True), r"capture failed \(CUDA failure 900"),
        ],
    )
    def test_that_cant_be_captured_says_why_and_is_right_all_the_same(
        self, opener: Opener, fake: FakeOrt, bound: Binder, faults: Faults, reason: str
    ) -> None:
        fake.faults = faults
        graph = opener().open("image_encoder")
        fixed, free = bound(graph), bound(graph, fixed=False, seed=1)
        for one in (free, fixed, free):
            one.binding.run()
            one.check()
        assert re.search(reason, fixed.binding.launch)
        assert fake.opened("image_encoder").options["enable_cuda_graph"] == "0"
        assert not any(run.replayed for run in fake.runs)

    @pytest.mark.parametrize(("version", "waits"), [("1.20.2", True), ("1.26.0", True), ("1.28.0", False)])
    def test_is_captured_by_every_version_and_says_where_a_replay_makes_the_host_wait(
        self, opener: Opener, bound: Binder, version: str, waits: bool
    ) -> None:
        """A wait takes some tens of microseconds, hundreds of single launches take milliseconds."""
        ort = FakeOrt(version=version)
        one = bound(opener(ort=ort).open("image_encoder"))
        for _ in range(3):
            one.binding.run()
        one.check()
        told = f"cuda graph: onnxruntime {version} waits after each launch of the graph, 1.28 does not"
        assert one.binding.launch == (told if waits else "cuda graph")
        assert [run.replayed for run in ort.runs] == [False, True, True]
        assert [run.host_waited for run in ort.runs] == [waits] * 3
        first, *later = [run.launches for run in ort.runs]
        assert first > 50
        assert later == [1, 1]

    def test_is_launched_plainly_by_tensorrt_whose_replays_wait(
        self, opener: Opener, fake: FakeOrt, bound: Binder
    ) -> None:
        binding = bound(opener("tensorrt").open("memory_encoder")).binding
        assert "TensorRT provider waits for the GPU after every replay" in binding.launch
        binding.run()
        binding.run()
        assert not any(run.host_waited for run in fake.runs)


def test_closing_lets_the_sessions_go(opener: Opener, fake: FakeOrt) -> None:
    """They hold memory as long as anything refers to them."""
    graphs = opener()
    opened = [graphs.open(name) for name in GRAPHS]
    kept = [graph.binding(fixed) for graph in opened for fixed in (True, False)]
    assert len(fake.sessions) == len(GRAPHS)
    graphs.close()
    assert kept
    assert fake.sessions == []


def test_opening_writes_nothing_to_the_terminal(
    opener: Opener, fake: FakeOrt, capfd: pytest.CaptureFixture[str]
) -> None:
    """onnxruntime warns of every session on a built-in provider that no plugin has it."""
    opener().open("prompt_encoder")
    assert capfd.readouterr().err == ""


class TestWhatIsRefused:
    def test_a_graph_with_other_tensors_than_the_bundle_says(
        self, spoiled: Callable[[Callable[[dict[str, Any]], None]], Path], fake: FakeOrt
    ) -> None:
        def swap(manifest: dict[str, Any]) -> None:
            manifest["graphs"]["memory_encoder"]["file"] = "image_encoder.onnx"

        graphs = OrtGraphs(Bundle.load(spoiled(swap)), "cuda", STREAM, ort=fake)
        with pytest.raises(InputError, match=r"image_encoder\.onnx has inputs image; the bundle declares"):
            graphs.open("memory_encoder")


class TestAMachineThatCant:
    @pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
    def test_start_the_provider_never_gets_a_cpu_session(
        self, opener: Opener, fake: FakeOrt, provider: str
    ) -> None:
        fake.faults.silent_cpu = True
        with pytest.raises(BackendError, match=r"could not start its \w+ and opened .* on CPUExecutionP"):
            opener(provider).open("image_encoder")
        assert not fake.runs

    @pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
    def test_run_some_node_is_told_which(self, opener: Opener, fake: FakeOrt, provider: str) -> None:
        fake.faults.cpu_ops = frozenset({"Softmax"})
        graphs = opener(provider)
        graphs.open("image_encoder")  # has none
        with pytest.raises(
            BackendError,
            match=rf"mask_decoder: node /\S+ \(Softmax\) and \d+ more would run on {CPU}",
        ):
            graphs.open("mask_decoder")

    def test_say_where_nodes_run_is_refused_only_if_some_are_on_the_cpu(
        self, opener: Opener, fake: FakeOrt
    ) -> None:
        fake.faults.placement_unknown = True
        graphs = opener()
        graphs.open("image_encoder")
        fake.faults.cpu_ops = frozenset({"Softmax"})
        with pytest.raises(BackendError, match=r"mask_decoder.* 1\.24"):
            graphs.open("mask_decoder")

    def test_find_a_kernel_for_its_gpu_says_so_at_once(
        self, opener: Opener, fake: FakeOrt, bound: Binder
    ) -> None:
        fake.faults.no_kernel = True
        with pytest.raises(BackendError, match=r"has no code for this GPU \(CUDA error 209"):
            opener("cuda")
        binding = bound(opener("tensorrt").open("memory_encoder")).binding
        with pytest.raises(BackendError, match=r"has no code for this GPU \(CUDA error 209"):
            binding.run()

    @pytest.mark.parametrize(
        ("text", "kind", "message"),
        [
            (
                OUT_OF_MEMORY,
                BackendError,
                r"GPU memory ran out in onnxruntime \(Failed to allocate",
            ),
            ("CUDA failure 35: driver version is insufficient", BackendError, "driver is too old"),
            (
                "CUDA failure 700: illegal address\nsecond line",
                RuntimeError,
                "failed on the GPU .*address.; open the pipeline again",
            ),
        ],
    )
    def test_finish_a_run_says_what_it_means_in_one_line(
        self, opener: Opener, fake: FakeOrt, bound: Binder, text: str, kind: type[Exception], message: str
    ) -> None:
        for runs_before in (0, 1):
            fake.faults.run_fails = ""
            binding = bound(opener().open("memory_encoder")).binding
            for _ in range(runs_before):
                binding.run()
            fake.faults.run_fails = text
            with pytest.raises(kind, match=message) as raised:
                binding.run()
            assert "\n" not in str(raised.value)
        assert binding.launch.startswith("cuda graph"), "it is no failure of the capture"

    def test_keep_some_shape_arithmetic_off_the_cpu_goes_on_without_capture(
        self, opener: Opener, fake: FakeOrt, bound: Binder
    ) -> None:
        fake.faults.cpu_ops = frozenset({"Slice"})
        one = bound(opener().open("memory_attention_fixed"))
        assert one.binding.launch == f"plain launches: Slice on {CPU}"
        assert fake.opened("memory_attention_fixed").options["enable_cuda_graph"] == "0"
        one.binding.run()
        one.check()


class TestTheOptions:
    """Whole: a wrong one costs time or exactness, and no number here would show it."""

    COMMON: ClassVar = {"device_id": "1", "user_compute_stream": str(STREAM)}

    @pytest.mark.parametrize("exact", [False, True])
    def test_of_cuda_leave_nothing_to_chance(self, opener: Opener, fake: FakeOrt, exact: bool) -> None:
        opener(device=1, exact=exact).open("image_encoder")
        assert fake.opened("image_encoder").options == self.COMMON | {
            "do_copy_in_default_stream": "1",
            "arena_extend_strategy": "kSameAsRequested",
            "cudnn_conv_algo_search": "HEURISTIC",
            "use_tf32": "0" if exact else "1",
            "enable_cuda_graph": "1",
        }

    def test_of_tensorrt_leave_precision_to_the_graph_and_everything_on_our_stream(
        self, opener: Opener, fake: FakeOrt
    ) -> None:
        opener("tensorrt", device=1).open("prompt_encoder")
        switched_off = ("fp16", "cuda_graph", "engine_cache", "timing_cache")
        assert fake.opened("prompt_encoder").options == self.COMMON | {
            **{f"trt_{name}_enable": "0" for name in switched_off},
            "trt_auxiliary_streams": "0",
            "trt_profile_min_shapes": "points:1x1x2,labels:1x1",
            "trt_profile_opt_shapes": "points:1x4x2,labels:1x4",
            "trt_profile_max_shapes": "points:1x512x2,labels:1x512",
        }

    @pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
    def test_ask_for_one_provider_one_thread_and_an_error_in_place_of_the_cpu(
        self, opener: Opener, fake: FakeOrt, provider: str
    ) -> None:
        opener(provider).open("image_encoder")
        session = fake.opened("image_encoder")
        assert session.get_providers() == [{"cuda": CUDA, "tensorrt": TENSORRT}[provider], CPU]
        assert session.threads == (1, 1)
        assert session.entries == {
            "session.intra_op.allow_spinning": "0",
            "session.record_ep_graph_assignment_info": "1",
            "session.disable_cpu_ep_fallback": "1",
        }

    def test_follow_what_the_pipeline_is_opened_with(
        self, fake: FakeOrt, shipped: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gpu, "_import_onnxruntime", lambda: fake)
        cuda = Cuda(FakeGpu(device=(ORIN_NX, ORIN_NANO)).driver)
        facts, stream = open_device(cuda, 1), Stream(cuda)

        def options(open_graphs: Callable[..., OrtGraphs], precision: str, facts: DeviceFacts = facts) -> Any:
            open_graphs(shipped, precision, facts, stream, tmp_path).open("image_encoder")
            found = fake.opened("image_encoder").options
            assert (found["device_id"], found["user_compute_stream"]) == ("1", str(stream.handle))
            return found

        exact = {precision: options(gpu.open_cuda, precision)["use_tf32"] for precision in ("tf32", "fp32")}
        assert exact == {"tf32": "1", "fp32": "0"}
        caches = {
            options(gpu.open_tensorrt, "tf32", board)["trt_engine_cache_path"]
            for board in (facts, replace(facts, multiprocessors=7))
        }
        assert [Path(cache).parent for cache in caches] == [tmp_path] * 2


class TestTheEngineCache:
    def folder(self, fake: FakeOrt, bundle: Bundle, cache: Path, **arguments: Any) -> Path:
        graphs = OrtGraphs(
            bundle, "tensorrt", ort=fake, engine_cache=cache, **{"stream": STREAM, **arguments}
        )
        graphs.open("prompt_encoder")
        options = fake.opened("prompt_encoder").options
        folder = Path(options["trt_engine_cache_path"])
        assert folder.is_dir()
        assert folder.parent == cache
        assert options["trt_engine_cache_prefix"] == f"prompt_encoder-{folder.name}"
        assert options["trt_timing_cache_path"] == str(folder)
        assert options["trt_engine_cache_enable"] == options["trt_timing_cache_enable"] == "1"
        return folder

    def test_is_found_again_from_any_stream_and_gpu(
        self, fake: FakeOrt, shipped: Bundle, tmp_path: Path
    ) -> None:
        first = self.folder(fake, shipped, tmp_path)
        assert self.folder(fake, shipped, tmp_path, stream=STREAM + 256, device=1) == first

    def test_of_another_onnxruntime_or_network_is_not(
        self,
        fake: FakeOrt,
        shipped: Bundle,
        tmp_path: Path,
        spoiled: Callable[[Callable[[dict[str, Any]], None]], Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def other(manifest: dict[str, Any]) -> None:
            name = "memory_attention.weights"
            path = tmp_path / "copy" / name
            path.write_bytes(path.read_bytes()[:-1] + b"?")
            manifest["files"][name]["sha256"] = file_sha256(path)

        cache = tmp_path / "engines"
        found = {
            self.folder(fake, shipped, cache),
            self.folder(FakeOrt(version="1.32.0"), shipped, cache),
            self.folder(fake, Bundle.load(spoiled(other)), cache),
        }
        monkeypatch.setattr(gpu, "tensorrt_version", lambda: "101303")
        found.add(self.folder(fake, shipped, cache))
        monkeypatch.setattr(options, "MAX_DYNAMIC", 100)  # another option of the provider
        found.add(self.folder(fake, shipped, cache))
        assert len(found) == 5

    def test_that_cant_be_made_is_refused(self, fake: FakeOrt, shipped: Bundle, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match=r"engine cache .* can't be made .Not a directory.; name"):
            self.folder(fake, shipped, tmp_path / "file")

    @pytest.mark.parametrize("part", ["root", "folder of a graph"])
    def test_that_every_user_may_write_is_refused(
        self, fake: FakeOrt, shipped: Bundle, tmp_path: Path, part: str
    ) -> None:
        folder = self.folder(fake, shipped, tmp_path)
        (tmp_path if part == "root" else folder).chmod(0o777)
        with pytest.raises(InputError, match="every user may write"):
            self.folder(fake, shipped, tmp_path)

    def test_is_told_with_the_engines_in_it(self, fake: FakeOrt, shipped: Bundle, tmp_path: Path) -> None:
        """A check at start-up is for these very engines."""
        graphs = OrtGraphs(shipped, "tensorrt", STREAM, ort=fake, engine_cache=tmp_path)
        told = [graphs.made_of]
        graphs.open("prompt_encoder")
        (folder,) = tmp_path.iterdir()
        for content in (b"one", b"another"):
            (folder / "a.engine").write_bytes(content)
            told.append(graphs.made_of)
        assert len(set(told)) == 3
        assert all(text.startswith(f"onnxruntime {fake.version} ") for text in told)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[ONNXRuntimeError] : 1 : FAIL : Something broke\nsecond line", "Something broke"),
        ("/src/core/a.cc:63 static void A::B(const C&) Please install TensorRT", "Please install TensorRT"),
        (
            "/src/a.cc:154 int CudaCall(T, const char*) [with T = int] \n /src/b.cc:1 int f()\n"
            "CUDA failure 35: CUDA driver version is insufficient ; GPU=-1 ; hostname=vm ; line=70",
            "CUDA failure 35: CUDA driver version is insufficient",
        ),
        ("", "RuntimeError"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_of_an_error_one_line_is_quoted_that_says_something(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line


def test_the_probe_is_one_addition() -> None:
    session = onnxruntime.InferenceSession(_PROBE, providers=[CPU])
    assert session.run(None, {"x": np.arange(8, dtype=np.float32)})[0].tolist() == list(range(0, 16, 2))


def test_a_damaged_graph_is_the_user_s_to_mend(shipped: Bundle, tmp_path: Path, fake: FakeOrt) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(shipped.folder, folder)
    bundle = Bundle.load(folder)
    (folder / "image_encoder.onnx").write_bytes(b"not a graph")
    with pytest.raises(
        InputError, match=r"onnxruntime can't load \S+/image_encoder\.onnx: .*; export the bundle again"
    ):
        OrtGraphs(bundle, "cuda", STREAM, ort=fake).open("image_encoder")
