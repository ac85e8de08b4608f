"""Opens a PyTorch device and checks that it works."""

from __future__ import annotations

import torch

from efftam_ros.core.errors import BackendError


def torch_device(name: str) -> torch.device:
    """Open the device of this name ("cpu", "cuda", "cuda:1").

    On CUDA this disables TF32 and enables cuDNN's benchmark mode, both for the whole process.

    Raises:
        ValueError: Not the name of a CPU or CUDA device.
        BackendError: PyTorch can't use the device: built without CUDA, driver missing or too old, no such
            device, or no code for its architecture.
    """
    device = torch.device(name)
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ValueError(f"device is {name!r}; give cpu, cuda or cuda:N")
    if torch.version.cuda is None:
        raise BackendError(
            f"PyTorch {torch.__version__} is built without CUDA",
            "install a CUDA build (https://pytorch.org/get-started) or choose the back end torch",
        )
    try:
        current = torch.cuda.current_device()
    except RuntimeError as error:
        raise BackendError(
            f"PyTorch {torch.__version__} can't use CUDA here: {_first_sentence(error)}",
            f"install an NVIDIA driver for CUDA {torch.version.cuda} or choose the back end torch",
        ) from error
    index = current if device.index is None else device.index
    found = torch.cuda.device_count()
    if index >= found:
        names = ", ".join(f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(found))
        raise BackendError(f"there is no CUDA device {index}", f"choose one of {names}")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    try:
        torch.ones(1, device=device).add_(1)
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise BackendError(
            f"PyTorch {torch.__version__} does not run on {torch.cuda.get_device_name(index)}:"
            f" {_first_sentence(error)}",
            "install a build of PyTorch for this GPU or choose the back end torch",
        ) from error
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return device


def _first_sentence(error: RuntimeError) -> str:
    return str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
