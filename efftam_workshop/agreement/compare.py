"""How far a network computed one way is from the same network computed another: by graph, and over a clip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.crop import make_crop_policy
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image, Prompt
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.device.memory import ATTENTION, GRAPHS, MemoryLayout
from efftam_ros.runtime.frame_state import round_bfloat16
from efftam_ros.runtime.preprocess import EncodedPrompt, Preprocessor, encode_prompt, no_prompt
from efftam_ros.runtime.verify import DISC_BOX, moving_disc, picture, relative_error
from efftam_workshop.agreement.runners import Arrays, Runner

UNUSED_KEY = -1e4
"""Added to an unused key's logit: its probability becomes exactly zero, and the value still fits float16."""


def key_bias(layout: MemoryLayout, rows: Sequence[int], pointers: int) -> NDArray[np.float32]:
    """[1,1,1,K]: 0 for the keys of these temporal rows and the first ``pointers`` slots, else `UNUSED_KEY`.

    Keys in order: the maps by row, then the pointers' tokens. In the pooled layout the maps' pooled keys (a
    quarter as many) are headed by the unpooled keys of one map, which are used when there is that map alone.
    """
    used_rows = np.isin(np.arange(layout.rows), rows)
    used_pointers = (np.arange(layout.pointers) < pointers).repeat(layout.pointer_tokens)
    if layout.pooled:
        alone = len(rows) == 1
        pooled = (used_rows & (not alone)).repeat(layout.tokens // 4)
        parts = [np.full(layout.tokens, alone), pooled, used_pointers]
    else:
        parts = [used_rows.repeat(layout.tokens), used_pointers]
    return np.where(np.concatenate(parts), 0.0, UNUSED_KEY).astype(np.float32).reshape(1, 1, 1, -1)


def laid_out(
    layout: MemoryLayout, rows: Sequence[int], maps: NDArray[np.float32], pointers: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Maps [T,N,M] of these temporal rows and pointers [P,C] as the inputs ``maps``, ``pointers`` and
    ``key_bias`` of the fixed memory attention; zeros where nothing is."""
    placed_maps = np.zeros((layout.rows, layout.tokens, layout.channels), np.float32)
    placed_maps[list(rows)] = maps
    placed_pointers = np.zeros((layout.pointers, layout.pointer_channels), np.float32)
    placed_pointers[: len(pointers)] = pointers
    return {
        "maps": placed_maps,
        "pointers": placed_pointers,
        "key_bias": key_bias(layout, rows, len(pointers)),
    }


class Chain:
    """The five graphs of `device.memory.GRAPHS`, with the latest frames as memory.

    `inputs` and `results` hold what each graph got and gave last, by graph name; `choice` is the row of the
    decoder's output that was remembered last.
    """

    def __init__(self, bundle: Bundle, graphs: Mapping[str, Runner]) -> None:
        self._bundle, self._graphs = bundle, graphs
        self._layout = MemoryLayout.of(bundle)
        self._rounds = bundle.memory_dtype == "bfloat16"
        self._memory: list[Arrays] = []
        self._tracking = no_prompt(bundle.spec.image_side)
        self.inputs: dict[str, dict[str, NDArray[Any]]] = {}
        self.results: dict[str, Arrays] = {}
        self.choice = 0

    def decode(self, image: NDArray[np.float32], prompt: EncodedPrompt | None) -> Arrays:
        """Return the mask decoder's outputs for an image [1,3,S,S] as the network wants it; ``prompt`` starts
        a new memory, None attends to the memory there is."""
        encoded = self._run("image_encoder", {"image": image})
        if prompt is not None:
            self._memory.clear()
        prompted = self._run("prompt_encoder", encoded | prompt_inputs(prompt or self._tracking))
        if prompt is None:
            prompted = prompted | self._run(ATTENTION, {"features": encoded["features"], **self._attended()})
        return self._run("mask_decoder", encoded | prompted)

    def remember(self, choice: int, prompted: bool) -> None:
        """Store the frame with the mask and pointer of this row of the decoder's."""
        self.choice = choice
        decoded, encoded = self.results["mask_decoder"], self.results["image_encoder"]
        stored = self._run(
            "memory_encoder",
            encoded
            | self.results["prompt_encoder"]
            | {
                "mask_logits": decoded["masks"][:, choice : choice + 1],
                "pointer": decoded["pointers"][choice : choice + 1],
                "present": np.ones(1, np.float32),
                "binarize": np.full(1, float(prompted), np.float32),
            },
        )
        stored = {name: np.array(value) for name, value in stored.items()}
        if self._rounds:
            round_bfloat16(stored["map"])
        self._memory.append(stored)

    def _run(self, name: str, tensors: Mapping[str, NDArray[Any]]) -> Arrays:
        wanted = self._bundle.graphs[name].inputs
        self.inputs[name] = {key: np.ascontiguousarray(tensors[key]) for key in wanted}
        self.results[name] = self._graphs[name](self.inputs[name])
        return dict(self.results[name])

    def _attended(self) -> Arrays:
        """Return the first frame in the last row, the others newest first from row 0 (docs/bundle.md)."""
        layout = self._layout
        latest = [self._memory[0], *reversed(self._memory[1:])]
        rows = [layout.rows - 1, *range(min(len(latest), layout.rows) - 1)]
        maps = np.concatenate([memory["map"] for memory in latest[: len(rows)]])
        pointers = np.concatenate([memory["stored_pointer"] for memory in latest[: layout.pointers]])
        return laid_out(layout, rows, maps, pointers)


def prompt_inputs(prompt: EncodedPrompt) -> Arrays:
    """Return the prompt encoder's inputs besides the features, by name."""
    return {
        "points": prompt.points,
        "labels": prompt.labels,
        "mask": prompt.mask,
        "has_mask": prompt.has_mask,
    }


@dataclass(frozen=True)
class GraphDeviation:
    """One output of a graph against the reference's on the same inputs.

    ``relative``: root mean square of the difference over that of the reference's output, infinite where the
    other's is not finite; ``max_abs``: largest absolute difference, NaN where shapes differ; ``largest``:
    largest absolute value of the reference, for scale; ``case``: which inputs.
    """

    graph: str
    output: str
    relative: float
    max_abs: float = float("nan")
    largest: float = float("nan")
    case: str = ""


@dataclass(frozen=True)
class ClipAgreement:
    """Two chains per frame. ``overlaps``: IoU of the chosen masks (logits > 0 at the decoder's resolution), 1
    where both are empty, 0 where the candidate's is not finite; ``deviations``: of their logits."""

    overlaps: tuple[float, ...]
    deviations: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.overlaps))

    @property
    def worst(self) -> float:
        return min(self.overlaps)


def deviations(graph: str, reference: Arrays, results: Arrays, case: str = "") -> list[GraphDeviation]:
    """Return every output of ``results`` against the reference's."""
    found = []
    for output, value in results.items():
        wanted = reference[output]
        if wanted.shape != value.shape:
            found.append(GraphDeviation(graph, output, float("inf"), case=case))
            continue
        max_abs = float(np.abs(np.subtract(wanted, value, dtype=np.float64)).max(initial=0.0))
        largest = float(np.abs(wanted).max(initial=0.0))
        found.append(GraphDeviation(graph, output, relative_error(wanted, value), max_abs, largest, case))
    return found


def compare_graphs(chain: Chain, candidate: Mapping[str, Runner]) -> list[GraphDeviation]:
    """Return every output of every graph that ``candidate`` has, on the inputs that the graph got last in
    ``chain``, against what the chain made of them."""
    found = []
    for name in GRAPHS:
        if name in candidate:
            found += deviations(name, chain.results[name], candidate[name](chain.inputs[name]))
    return found


def seeded_chain(bundle: Bundle, graphs: Mapping[str, Runner]) -> Chain:
    """Return a chain that has run three seeded frames, so that every graph has had inputs as in use."""
    frames = [picture(moving_disc(number)) for number in range(3)]
    *_, (chain,) = run_clip(bundle, [graphs], frames, DISC_BOX)
    return chain


def compare_clip(
    bundle: Bundle,
    reference: Mapping[str, Runner],
    candidate: Mapping[str, Runner],
    frames: Iterable[NDArray[np.uint8]],
    box: Box,
) -> ClipAgreement:
    """Two chains over the same pictures [H,W,3] BGR, each with its own memory; ``box`` (image px) selects the
    target on the first. Views and the choice among candidates are the reference chain's, so that what differs
    is the networks' doing."""
    overlaps, errors = [], []
    for chains in run_clip(bundle, (reference, candidate), frames, box):
        logits = [chain.results["mask_decoder"]["masks"][0, chain.choice] for chain in chains]
        overlaps.append(_overlap(*logits))
        errors.append(relative_error(*logits))
    return ClipAgreement(tuple(overlaps), tuple(errors))


def run_clip(
    bundle: Bundle, networks: Sequence[Mapping[str, Runner]], frames: Iterable[NDArray[np.uint8]], box: Box
) -> Iterator[list[Chain]]:
    """Yield a chain of each network over the same pictures, as `compare_clip`; yields the chains after each
    frame. Views and the choice among candidates are the first chain's."""
    spec = bundle.spec
    preprocess = Preprocessor(spec.image_side, bundle.mean, bundle.std)
    crop_policy = make_crop_policy(spec.default_view, spec.image_side, spec.window_factor)
    chains = [Chain(bundle, graphs) for graphs in networks]
    for number, frame in enumerate(frames):
        height, width = frame.shape[:2]
        first = number == 0
        view = (
            crop_policy.starts((width, height), box, box)[0]
            if first
            else crop_policy.view((width, height), box, 0.0)
        )
        prompt = encode_prompt(Prompt(box=box), view, width, height) if first else None
        image = preprocess(Image.from_array(frame), view).copy()
        decoded = [chain.decode(image, prompt) for chain in chains]
        choice = 0 if first else 1 + int(decoded[0]["ious"][1:].argmax())
        for chain in chains:
            chain.remember(choice, prompted=first)
        yield chains
        boxes = chains[0].results["mask_decoder"]["boxes"]
        # The window follows the reference alone: both networks see the same pictures throughout.
        seen = view.to_image(Box.from_edges(*boxes[choice].tolist()))
        if seen.width > 0 and seen.height > 0:
            box = seen


def _overlap(reference: NDArray[np.float32], value: NDArray[np.float32]) -> float:
    if not np.isfinite(value).all():
        return 0.0
    wanted, got = reference > 0, value > 0
    union = np.count_nonzero(wanted | got)
    return np.count_nonzero(wanted & got) / union if union else 1.0
