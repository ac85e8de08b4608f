"""The precision forms that are tried for a module, and the graph of each."""

from __future__ import annotations

import onnx

from efftam_ros.export.fp16.attention import attentions
from efftam_ros.export.fp16.checks import check_fp16
from efftam_ros.export.fp16.convert import Fp16Options, convert, default_form, plain_graph

FP32, INT8 = "fp32", "int8"
ALLOWED = ("fused_fp32", "unfused_fp32")
"""Forms of attention in FP16 (`fp16.attention`) that are built; all_fp16 is left out because it accumulates
scores in FP16."""


def fp16_forms(model: onnx.ModelProto, wanted: str = "") -> tuple[str, ...]:
    """All forms that make different graphs, the one expected to be fastest first; ``wanted`` alone where it
    is given."""
    found = attentions(model)
    first = default_form(found)
    if not found:
        return (first,)
    return (wanted,) if wanted else (first, *(form for form in ALLOWED if form != first))


def fp16_graph(name: str, model: onnx.ModelProto, form: str) -> onnx.ModelProto:
    """A module's FP32 graph, quantised or not, in FP16. Raises InputError when it can't be converted,
    RuntimeError when the conversion is faulty."""
    plain = plain_graph(model)
    fp16, report = convert(plain, name, Fp16Options({name: form}))
    faults = check_fp16(fp16, plain, report.form)
    if faults:
        raise RuntimeError(f"the FP16 graph of {name} is faulty: {'; '.join(faults)}")
    return fp16
