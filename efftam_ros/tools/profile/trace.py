"""Reads the operator traces written by onnxruntime and PyTorch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError

BETWEEN = "between modules"
"""Module name of an operator that runs outside all modules."""
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_NAME_LENGTH = 56


@dataclass(frozen=True)
class Operation:
    """One run of one operator. ``where``: the execution provider or the device; ``seconds``: its duration."""

    module: str
    operator: str
    where: str
    seconds: float


def onnxruntime_operations(path: Path, module: str, runs: int) -> Iterator[Operation]:
    """Yield the operators of the last ``runs`` runs of a session from its trace.

    Times are those of the kernels; on a GPU provider those of the kernel launches, unless onnxruntime was
    built to trace devices. Raises InputError when the trace has fewer runs, because onnxruntime keeps at most
    a million events.
    """
    events = json.loads(path.read_text(encoding="utf-8"))
    starts = sorted(event["ts"] for event in events if event["name"] == "model_run")
    if len(starts) < runs:
        raise InputError(
            f"onnxruntime recorded {len(starts)} of {runs} runs of {module}; ask for fewer --frames"
        )
    begin = starts[-runs] if runs else float("inf")
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith("_kernel_time") and event["ts"] >= begin:
            args = event["args"]
            where = args["provider"].removesuffix("ExecutionProvider")
            yield Operation(module, args["op_name"], where, 1e-6 * event["dur"])


def torch_operations(path: Path, modules: Iterable[str]) -> Iterator[Operation]:
    """Yield the operators in a trace of torch.profiler, each assigned to the one of ``modules`` whose range
    contains it.

    With a GPU: the kernels and copies on it, with their device times. Without: the outermost operators of
    each thread, with the time until they returned.
    """
    events = [e for e in json.loads(path.read_text(encoding="utf-8"))["traceEvents"] if e.get("ph") == "X"]
    names = set(modules)
    on_device = [event for event in events if event["cat"] in _ON_DEVICE]
    if on_device:
        ranges = [e for e in events if e["cat"] == "gpu_user_annotation" and e["name"] in names]
        yield from _in_ranges(on_device, ranges, "cuda")
        return
    for _, thread in groupby(sorted(events, key=_thread), key=_thread):
        of_thread = list(thread)
        ranges = [e for e in of_thread if e["cat"] == "user_annotation" and e["name"] in names]
        yield from _in_ranges(_outermost(e for e in of_thread if e["cat"] == "cpu_op"), ranges, "cpu")


def short_name(operator: str) -> str:
    """A kernel's name without C++ types."""
    return re.split(r"[<(]", operator.removeprefix("void "))[0].strip()[:_NAME_LENGTH] or operator


def _thread(event: dict[str, Any]) -> tuple[str, str]:
    return str(event["pid"]), str(event["tid"])


def _begin(event: dict[str, Any]) -> tuple[float, float]:
    """Sort key that puts an event before those that it encloses."""
    return event["ts"], -event["dur"]


def _outermost(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    end = float("-inf")
    for event in sorted(events, key=_begin):
        if event["ts"] >= end:
            end = event["ts"] + event["dur"]
            yield event


def _in_ranges(
    events: Iterable[dict[str, Any]], ranges: Iterable[dict[str, Any]], where: str
) -> Iterator[Operation]:
    """Each event as an operation of the range in which it begins; ranges do not overlap."""
    ahead = sorted(ranges, key=_begin)
    passed = 0
    for event in sorted(events, key=_begin):
        while passed < len(ahead) and ahead[passed]["ts"] + ahead[passed]["dur"] <= event["ts"]:
            passed += 1
        inside = passed < len(ahead) and ahead[passed]["ts"] <= event["ts"]
        module = ahead[passed]["name"] if inside else BETWEEN
        yield Operation(module, short_name(event["name"]), where, 1e-6 * event["dur"])
