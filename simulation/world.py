"""The rendered world: renders the pictures of a drone's camera, with the target's true box in each picture.

The scene has a textured ground, ring roads, houses and trees. The target is a car. Another car looks the
same, and a bridge over the road hides the target at times. By default rendering is done in software and needs
neither a display nor a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.messages.bearing import Intrinsics
from simulation.paths import Circuit, Drone, Pose
from simulation.rotations import from_yaw_pitch, matrix
from simulation.scene_parts import box, car, panda, plane, smooth_noise, texture

GROUND_M = 400.0
ROAD_M, ROAD_HIGH_M = 9.0, 0.12
# Distance of the near clipping plane, m. A depth buffer with few bits resolves distances well only if this
# plane is distant. It hides nothing, because everything is far below the drone.
NEAR_M = 12.0
TRUTH = "truth"
RENDERERS = ("p3tinydisplay", "p3headlessgl")


@dataclass(frozen=True)
class WorldConfig:
    """Settings of the rendered world.

    ``focal_px``: focal length of the camera. ``renderer``: p3tinydisplay (software) or p3headlessgl (OpenGL,
    smoother). ``seed``: decides the places of houses and trees. ``like``: path of the car that looks like the
    target.
    """

    width: int = 640
    height: int = 360
    focal_px: float = 450.0
    renderer: str = "p3tinydisplay"
    seed: int = 4
    target: Circuit = field(default_factory=lambda: Circuit(60.0, 90.0, 60.0))
    like: Circuit = field(default_factory=lambda: Circuit(48.0, 76.0, -67.0, phase_s=48.0))
    drone: Drone = field(default_factory=Drone)
    with_bridge: bool = True


@dataclass(frozen=True)
class Shot:
    """One rendered picture. ``image``: BGR, uint8 [H, W, 3]. ``box``: around the visible part of the target,
    px; None if it is hidden. ``visible_px``: number of the target's visible pixels."""

    image: NDArray[np.uint8]
    box: Box | None
    visible_px: int


class World:
    """A renderer with its scene. `close` must be called at the end. Raises ValueError for an unknown
    renderer, and RuntimeError if the renderer can't be started."""

    def __init__(self, config: WorldConfig | None = None) -> None:
        self.config = config = config or WorldConfig()
        if config.renderer not in RENDERERS:
            raise ValueError(f"renderer is {config.renderer!r}; choose one of {', '.join(RENDERERS)}")
        pipe = panda.GraphicsPipeSelection.getGlobalPtr().makeModulePipe(config.renderer)
        if pipe is None:
            raise RuntimeError(f"panda3d can't start {config.renderer} here; try p3tinydisplay")
        self._engine = panda.GraphicsEngine(pipe)
        self._scene = panda.NodePath("scene")
        self._target = self._car(config.target.at(0.0))
        self._target.setTag(TRUTH, "target")
        self._like = self._car(config.like.at(0.0))
        self._static = self._scene.attachNewNode("static")
        self._build(np.random.default_rng(config.seed))
        self._static.flattenStrong()
        lens = panda.PerspectiveLens()
        lens.setFilmSize(config.width, config.height)
        lens.setFocalLength(config.focal_px)
        lens.setNearFar(NEAR_M, 2000.0)
        self._picture = self._buffer(pipe, "picture", lens)
        self._mask = self._buffer(pipe, "mask", lens)
        self._only_the_target(self._mask[1])

    @property
    def intrinsics(self) -> Intrinsics:
        """The intrinsics of the rendered camera, whose optical axis passes through the picture's middle."""
        c = self.config
        return Intrinsics(c.focal_px, c.focal_px, c.width / 2 - 0.5, c.height / 2 - 0.5)

    def shoot(self, time_s: float, yaw: float, pitch: float) -> Shot:
        """Render the picture of a level camera at this time, s, and with this yaw (from north) and pitch,
        rad."""
        config = self.config
        self._place(self._target, config.target.at(time_s))
        self._place(self._like, config.like.at(time_s))
        drone = config.drone.at(time_s)
        for _, camera, _ in (self._picture, self._mask):
            camera.setPos(drone.east, drone.north, drone.up)
            camera.setHpr(-math.degrees(yaw), math.degrees(pitch), 0.0)
        self._engine.renderFrame()
        mask = self._read(self._mask[2])[:, :, 0] > 127
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        found = None
        if len(rows):
            found = Box.from_edges(columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
        return Shot(self._read(self._picture[2]), found, int(mask.sum()))

    def project(self, axis: tuple[float, float], target: tuple[float, float]) -> tuple[float, float]:
        """Return the point (u, v) of the picture at which a target's direction is seen, px; NaN if it is
        behind the camera. ``axis``: direction of the optical axis. Both directions are (yaw, pitch), rad."""
        flat = math.cos(target[1])
        north_east_down = (flat * math.cos(target[0]), flat * math.sin(target[0]), -math.sin(target[1]))
        forward, right, down = matrix(from_yaw_pitch(*axis)).T @ np.array(north_east_down)
        if forward <= 0.0:
            return math.nan, math.nan
        config = self.config
        scale = config.focal_px / forward
        return float(config.width / 2 + scale * right), float(config.height / 2 + scale * down)

    def close(self) -> None:
        """Free the renderer's buffers. The world can't be used afterwards."""
        self._engine.removeAllWindows()

    def _car(self, pose: Pose) -> Any:
        made = car((0.75, 0.1, 0.1))
        made.reparentTo(self._scene)
        self._place(made, pose)
        return made

    def _place(self, node: Any, pose: Pose) -> None:
        node.setPos(pose.east, pose.north, pose.up)
        node.setH(-math.degrees(pose.heading))

    def _build(self, rng: np.random.Generator) -> None:
        config = self.config
        grass = smooth_noise(rng, 512, (8, 32, 128, 256))[..., None] * np.array([70, 90, 50]) + (45, 60, 30)
        ground = plane(GROUND_M, 16.0, texture(grass.astype(np.uint8)))
        ground.reparentTo(self._static)
        asphalt = smooth_noise(rng, 128, (16, 64))[..., None] * np.array([40, 40, 42]) + 70
        tarmac = texture(asphalt.astype(np.uint8))
        for circuit in (config.target, config.like):
            for i in range(180):
                pose = circuit.at(i / 180 * circuit.period_s)
                slab = box((ROAD_M, 4.6, ROAD_HIGH_M), (1.0, 1.0, 1.0), tarmac)
                slab.reparentTo(self._static)
                self._place(slab, pose)
        bricks = texture(
            (smooth_noise(rng, 64, (4, 16, 32))[..., None] * np.array([90, 80, 70]) + 110).astype(np.uint8)
        )
        leaves = texture(
            (smooth_noise(rng, 64, (8, 32))[..., None] * np.array([40, 70, 30]) + (10, 30, 5)).astype(
                np.uint8
            )
        )
        for _ in range(60):
            self._house(rng, bricks)
        for _ in range(90):
            self._tree(rng, leaves)
        if config.with_bridge:
            # The bridge crosses the road at the place that the target reaches after a quarter of its round.
            pose = config.target.at(config.target.period_s / 4)
            deck = box((26.0, 11.0, 1.0), (0.8, 0.8, 0.78), bricks)
            deck.reparentTo(self._static)
            self._place(deck, Pose(pose.north, pose.east, 6.0, pose.heading))

    def _free_place(self, rng: np.random.Generator, clear_m: float) -> tuple[float, float]:
        """Return north and east, m, of a random place that is at least about ``clear_m`` away from the
        target's road."""
        config = self.config
        while True:
            north, east = rng.uniform(-130, 130, 2)
            ring = math.hypot(north / config.target.north_m, east / config.target.east_m)
            if abs(ring - 1.0) * config.target.north_m > clear_m and ring > 0.3:
                return float(north), float(east)

    def _house(self, rng: np.random.Generator, bricks: Any) -> None:
        size = (rng.uniform(7, 14), rng.uniform(7, 14), rng.uniform(4, 11))
        colour = tuple(rng.uniform(0.6, 1.0, 3))
        house = box(size, (colour[0], colour[1], colour[2]), bricks)
        house.reparentTo(self._static)
        north, east = self._free_place(rng, 20.0)
        self._place(house, Pose(north, east, 0.0, rng.uniform(0, math.pi)))

    def _tree(self, rng: np.random.Generator, leaves: Any) -> None:
        north, east = self._free_place(rng, 13.0)
        trunk = box((0.6, 0.6, 3.0), (0.35, 0.25, 0.15))
        crown = box((4.0, 4.0, 4.5), (1.0, 1.0, 1.0), leaves)
        for part, up in ((trunk, 0.0), (crown, 2.5)):
            part.reparentTo(self._static)
            self._place(part, Pose(north, east, up, rng.uniform(0, math.pi)))

    def _buffer(self, pipe: Any, name: str, lens: Any) -> tuple[Any, Any, Any]:
        """Return a buffer that is rendered into memory, its camera, and the texture with its pixels."""
        config = self.config
        form = panda.FrameBufferProperties()
        form.setRgbColor(True)
        form.setDepthBits(24)
        buffer = self._engine.makeOutput(
            pipe,
            name,
            0,
            form,
            panda.WindowProperties.size(config.width, config.height),
            panda.GraphicsPipe.BFRefuseWindow,
        )
        if buffer is None:
            raise RuntimeError(f"panda3d can't render into memory with {config.renderer} here")
        buffer.setClearColor((0.55, 0.7, 0.85, 1.0) if name == "picture" else (0.0, 0.0, 0.0, 1.0))
        image = panda.Texture()
        buffer.addRenderTexture(image, panda.GraphicsOutput.RTMCopyRam, panda.GraphicsOutput.RTPColor)
        camera = self._scene.attachNewNode(panda.Camera(name, lens))
        buffer.makeDisplayRegion().setCamera(camera)
        return buffer, camera, image

    def _only_the_target(self, camera: Any) -> None:
        """Make a camera render the target white and everything else black. Objects in front of the target
        still hide it."""
        for colour, tag in ((0.0, None), (1.0, "target")):
            state = panda.NodePath("state")
            state.setTextureOff(1)
            state.setColor((colour, colour, colour, 1.0), 1)
            if tag is None:
                camera.node().setInitialState(state.getState())
            else:
                state.setTextureOff(2)
                state.setColor((colour, colour, colour, 1.0), 2)
                camera.node().setTagStateKey(TRUTH)
                camera.node().setTagState(tag, state.getState())

    def _read(self, image: Any) -> NDArray[np.uint8]:
        data = np.frombuffer(image.getRamImageAs("BGR"), np.uint8)
        picture: NDArray[np.uint8] = data.reshape(self.config.height, self.config.width, 3)[::-1].copy()
        return picture
