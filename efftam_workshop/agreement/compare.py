"""Compares two computations of one network: graph by graph, and over a clip."""

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
"""Added to the logit of an unused key: its probability becomes exactly zero. The value fits into float16."""


def key_bias(layout: MemoryLayout, rows: Sequence[int], pointers: int) -> NDArray[np.float32]:
    """Return the bias of the attention's logits, [1,1,1,K], for the K keys of a memory.

    The bias is 0 for the keys of the maps in ``rows`` and of the first ``pointers`` slots, and `UNUSED_KEY`
    for all other keys. The keys are ordered: the maps by temporal row, then the tokens of the pointers. In
    the pooled layout each map has a quarter as many keys. The unpooled keys of one map precede the pooled
    keys; they are used when that map is the only one, and the pooled keys otherwise.
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
    """Return the inputs ``maps``, ``pointers`` and ``key_bias`` of the memory attention of fixed shape.

    ``maps`` [T,N,M] belong to the temporal rows ``rows``; ``pointers`` is [P,C]. Unused rows and slots are
    zero.
    """
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

    `inputs` and `results` hold the last inputs and outputs of each graph, by the graph's name. `choice` is
    the row of the mask decoder's output that was remembered last.
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
        """Return the mask decoder's outputs for the preprocessed image [1,3,S,S].

        With a ``prompt`` the memory is cleared first. With None the image attends to the memory.
        """
        encoded = self._run("image_encoder", {"image": image})
        if prompt is not None:
            self._memory.clear()
        prompted = self._run("prompt_encoder", encoded | prompt_inputs(prompt or self._tracking))
        if prompt is None:
            prompted = prompted | self._run(ATTENTION, {"features": encoded["features"], **self._attended()})
        return self._run("mask_decoder", encoded | prompted)

    def remember(self, choice: int, prompted: bool) -> None:
        """Append the last decoded frame to the memory, with the mask and pointer of row ``choice``."""
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
        """Return the inputs of the attention to the frames in memory, in the order of docs/bundle.md.

        The first frame is in the last row. Later frames follow from row 0 on, newest first.
        """
        layout = self._layout
        latest = [self._memory[0], *reversed(self._memory[1:])]
        rows = [layout.rows - 1, *range(min(len(latest), layout.rows) - 1)]
        maps = np.concatenate([memory["map"] for memory in latest[: len(rows)]])
        pointers = np.concatenate([memory["stored_pointer"] for memory in latest[: layout.pointers]])
        return laid_out(layout, rows, maps, pointers)


def prompt_inputs(prompt: EncodedPrompt) -> Arrays:
    """Return the inputs of the prompt encoder, except the image's features, by name."""
    return {
        "points": prompt.points,
        "labels": prompt.labels,
        "mask": prompt.mask,
        "has_mask": prompt.has_mask,
    }


@dataclass(frozen=True)
class GraphDeviation:
    """The difference between one output of a graph and the reference's output for the same inputs.

    ``relative``: root mean square of the difference divided by that of the reference's output; infinite if
    the compared output is not finite or has another shape. ``max_abs``: largest absolute difference, NaN if
    the shapes differ. ``largest``: largest absolute value of the reference's output. ``case``: name of the
    inputs.
    """

    graph: str
    output: str
    relative: float
    max_abs: float = float("nan")
    largest: float = float("nan")
    case: str = ""


@dataclass(frozen=True)
class ClipAgreement:
    """The differences between two chains, one value per frame of a clip.

    ``overlaps``: IoU of the two chosen masks (logits above 0, at the decoder's resolution). It is 1 if both
    are empty and 0 if the candidate's logits are not finite. ``deviations``: relative errors of the masks'
    logits.
    """

    overlaps: tuple[float, ...]
    deviations: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.overlaps))

    @property
    def worst(self) -> float:
        return min(self.overlaps)


def deviations(graph: str, reference: Arrays, results: Arrays, case: str = "") -> list[GraphDeviation]:
    """Return the deviation of each output in ``results`` from the same output in ``reference``."""
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
    """Return the deviation of each output of each graph in ``candidate`` from the output in ``chain``.

    Each graph is run on the inputs that the graph of the same name received last in ``chain``.
    """
    found = []
    for name in GRAPHS:
        if name in candidate:
            found += deviations(name, chain.results[name], candidate[name](chain.inputs[name]))
    return found


def seeded_chain(bundle: Bundle, graphs: Mapping[str, Runner]) -> Chain:
    """Return a chain that has processed three generated frames, so that every graph has realistic inputs."""
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
    """Run two chains over the same pictures [H,W,3] BGR and return the differences of their masks.

    Each chain has its own memory. ``box`` (image px) selects the target in the first picture. Both chains use
    the views and the candidates that the reference chain chooses, so that all differences come from the
    networks.
    """
    overlaps, errors = [], []
    for chains in run_clip(bundle, (reference, candidate), frames, box):
        logits = [chain.results["mask_decoder"]["masks"][0, chain.choice] for chain in chains]
        overlaps.append(_overlap(*logits))
        errors.append(relative_error(*logits))
    return ClipAgreement(tuple(overlaps), tuple(errors))


def run_clip(
    bundle: Bundle, networks: Sequence[Mapping[str, Runner]], frames: Iterable[NDArray[np.uint8]], box: Box
) -> Iterator[list[Chain]]:
    """Run one chain per network over the pictures [H,W,3] BGR and yield all chains after each frame.

    ``box`` (image px) selects the target in the first picture. All chains use the views and the candidates
    that the first chain chooses.
    """
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
        # The first chain's box moves the window of all chains, so that all networks see the same pictures.
        seen = view.to_image(Box.from_edges(*boxes[choice].tolist()))
        if seen.width > 0 and seen.height > 0:
            box = seen


def _overlap(reference: NDArray[np.float32], value: NDArray[np.float32]) -> float:
    if not np.isfinite(value).all():
        return 0.0
    wanted, got = reference > 0, value > 0
    union = np.count_nonzero(wanted | got)
    return np.count_nonzero(wanted & got) / union if union else 1.0
