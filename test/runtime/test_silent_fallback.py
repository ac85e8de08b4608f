"""Asking the real onnxruntime for a GPU it can't use ends in a refusal, never in a session on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import onnxruntime
import pytest
from runtime.fake_ort import FakeOrt

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.backends import backend_of
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.onnxruntime import libraries
from efftam_ros.runtime.onnxruntime.gpu import OrtGraphs
from efftam_ros.runtime.onnxruntime.graph import Node, check_placement, read_assignment
from efftam_ros.runtime.onnxruntime.libraries import PROVIDERS, is_cpu_fallback_error, needed

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
STREAM = 0x7F00_1234_5678  # never reached
COMPILED_IN = set(PROVIDERS.values()) <= set(onnxruntime.get_available_providers())


@pytest.mark.skipif(COMPILED_IN, reason="onnxruntime-gpu is installed")
@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_onnxruntime_for_the_cpu_has_no_such_provider_and_we_say_so(shipped: Bundle, provider: str) -> None:
    with pytest.raises(BackendError) as refused:
        OrtGraphs(shipped, provider, STREAM)  # type: ignore[arg-type]
    written = {"cuda": "CUDA", "tensorrt": "TensorRT"}[provider]
    assert refused.value.reason == (
        f"onnxruntime {onnxruntime.__version__} was built without its {written} provider"
    )
    assert refused.value.remedy == backend_of(f"onnxruntime-{provider}").install.here()


@pytest.mark.skipif(libraries._loads("libcuda.so.1"), reason="this machine has an NVIDIA driver")
@pytest.mark.parametrize("provider", list(PROVIDERS.values()))
@pytest.mark.filterwarnings("ignore")
def test_the_refusal_of_onnxruntime_itself_is_known(shipped: Bundle, provider: str) -> None:
    """If this fails, onnxruntime has changed what its strict key says."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(Exception, match=r"default CPU EP|explicitly added the CPU EP|TensorRT") as raised:
        onnxruntime.InferenceSession(
            str(shipped.graphs["image_encoder"].path),
            options,
            providers=[(provider, {"device_id": "0"})],
            enable_fallback=0,
        )
    assert is_cpu_fallback_error(raised.value) or "Please install TensorRT libraries" in str(raised.value)


@pytest.mark.parametrize("op_type", ["Conv", "MatMul", "Softmax", "Resize", "Cast", "MemcpyToHost", "Concat"])
@pytest.mark.parametrize("provider", [CPU, CUDA])
def test_work_on_another_provider_is_refused_and_shape_arithmetic_is_told(
    op_type: str, provider: str
) -> None:
    shapes = [Node(provider, kind, "") for kind in ("Gather", "Range", "Shape")]
    nodes = [Node(TENSORRT, "Conv", "first"), *shapes]
    assert check_placement(nodes, TENSORRT, "g") == tuple(shapes)
    with pytest.raises(BackendError) as refused:
        check_placement([*nodes, Node(provider, op_type, "")], TENSORRT, "memory_attention_fixed")
    assert refused.value.reason == (
        f"memory_attention_fixed: node without a name ({op_type}) would run on {provider}, not on {TENSORRT}"
    )


def test_a_real_session_tells_every_node(shipped: Bundle) -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = onnxruntime.InferenceSession(
        str(shipped.graphs["image_encoder"].path), options, providers=[CPU]
    )
    nodes = read_assignment(session)
    assert nodes is not None
    assert check_placement(nodes, CPU, "image_encoder") == ()
    assert sum(node.op_type in ("Conv", "FusedConv") for node in nodes) == 52
    with pytest.raises(BackendError, match=r"image_encoder: node /image_encoder/.* \(Conv\) and \d+ more"):
        check_placement(nodes, CUDA, "image_encoder")


def test_what_can_not_be_told_is_told_apart_from_nodes_on_the_cpu_which_have_an_empty_name() -> None:
    assert read_assignment(SimpleNamespace()) is None
    node = SimpleNamespace(op_type="Conv", name="a")
    parts = [SimpleNamespace(ep_name="", get_nodes=lambda: [node])]
    session = SimpleNamespace(get_provider_graph_assignment_info=lambda: parts)
    assert read_assignment(session) == [Node(CPU, "Conv", "a")]
    parts.clear()
    assert read_assignment(session) is None


CUDA_LINKED = ["libonnxruntime_providers_shared.so", "libcublas.so.12", "libcudnn.so.9"]
TENSORRT_LINKED = {"tensorrt": ["libnvinfer.so.10"], "cuda": CUDA_LINKED}
"""What the library of each provider links."""


class TestLibraries:
    """Against libraries that are on every machine."""

    def test_the_needed_ones_are_those_that_the_linker_would_load(self) -> None:
        import numpy.linalg._umath_linalg as extension

        names = needed(Path(extension.__file__))
        assert any(name.startswith("libc.so") for name in names)
        assert all(name.isascii() and ".so" in name for name in names)

    @pytest.fixture
    def ort(self, tmp_path: Path) -> FakeOrt:
        """A module whose providers are shared libraries, as in the real wheel."""
        (tmp_path / "capi").mkdir()
        for provider in PROVIDERS:
            (tmp_path / "capi" / f"libonnxruntime_providers_{provider}.so").write_bytes(b"")
        return FakeOrt(file=str(tmp_path / "__init__.py"))

    @pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
    def test_none_is_loaded_without_a_driver(
        self, shipped: Bundle, ort: FakeOrt, monkeypatch: pytest.MonkeyPatch, provider: str
    ) -> None:
        tried: list[str] = []
        monkeypatch.setattr(libraries, "_loads", lambda name: tried.append(name))
        with pytest.raises(BackendError, match=r"needs an NVIDIA driver: libcuda\.so\.1"):
            OrtGraphs(shipped, provider, STREAM, ort=ort)  # type: ignore[arg-type]
        assert tried == ["libcuda.so.1"]

    @pytest.mark.parametrize(
        ("provider", "linked", "there", "reason", "remedy"),
        [
            (
                "tensorrt",
                TENSORRT_LINKED,
                {"libcuda.so.1", "libnvinfer.so.11"},
                "needs libnvinfer.so.10, libcublas.so.12; TensorRT 11 is installed",
                "make another Python environment, because TensorRT 11 would be replaced",
            ),
            (
                "tensorrt",
                TENSORRT_LINKED,
                {"libcuda.so.1"},
                "needs libnvinfer.so.10, libcublas.so.12, which can't be loaded",
                f"install TensorRT 10: {backend_of('onnxruntime-tensorrt').install.here()}",
            ),
            (
                "cuda",
                {"cuda": CUDA_LINKED},
                {"libcuda.so.1"},
                "needs libcublas.so.12, which can't be loaded",
                backend_of("onnxruntime-cuda").install.here(),
            ),
        ],
    )
    def test_one_that_does_not_load_is_named_with_the_remedy(
        self, shipped: Bundle, ort: FakeOrt, monkeypatch, tmp_path, provider, linked, there, reason, remedy
    ) -> None:
        """Those in packages of pip are found: onnxruntime loads CUDA's, importing TensorRT its own."""

        def preload(self: FakeOrt, directory: str) -> None:
            there.add("libcudnn.so.9")

        monkeypatch.setattr(FakeOrt, "preload_dlls", preload, raising=False)
        monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "tensorrt.py").write_text("")
        monkeypatch.setattr(libraries, "needed", lambda library: linked[library.stem.rpartition("_")[2]])
        monkeypatch.setattr(libraries, "_loads", lambda name: name in there)
        with pytest.raises(BackendError) as refused:
            OrtGraphs(shipped, provider, STREAM, ort=ort)
        assert reason in refused.value.reason
        assert remedy in refused.value.remedy
        assert ("tensorrt" in sys.modules) == (provider == "tensorrt")
        sys.modules.pop("tensorrt", None)
