"""A scene from above for pictures of the page: fields, a road, and cars of which one is followed."""

from __future__ import annotations

import cv2
import numpy as np

from efftam_ros.core.geometry import Box

WIDTH, HEIGHT = 1280, 720
CAR = (46, 22)


class GroundScene:
    """`picture(t)` gives uint8 [H, W, 3] BGR, `car(t)` the box of the first car; ``t`` in s."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        ground = np.zeros((HEIGHT, WIDTH, 3), np.float32) + (62, 96, 84)
        for size, height in ((160, 24), (40, 12), (12, 6)):
            noise = rng.normal(0, 1, (HEIGHT // size + 2, WIDTH // size + 2)).astype(np.float32)
            grown = cv2.resize(noise, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
            ground += height * grown[..., None] * (0.7, 1.0, 0.9)
        picture = np.clip(ground, 0, 255).astype(np.uint8)
        cv2.line(picture, (-20, 560), (WIDTH + 20, 300), (112, 112, 116), 96, cv2.LINE_AA)
        for i in range(0, WIDTH, 70):
            y = 560 - 260 * (i + 20) / (WIDTH + 40)
            cv2.line(picture, (i, int(y)), (i + 34, int(y - 7)), (215, 215, 215), 3, cv2.LINE_AA)
        for _ in range(60):
            x, y, radius = (int(rng.integers(0, limit)) for limit in (WIDTH, HEIGHT, 18))
            if abs(y - (560 - 0.2 * x)) > 90:
                cv2.circle(picture, (x, y), 8 + radius, (34, 66, 44), -1, cv2.LINE_AA)
        self._ground = cv2.GaussianBlur(picture, (0, 0), 0.8)

    def car(self, t: float) -> Box:
        return Box.from_centre(420 + 45 * t, 580 - 0.197 * (440 + 45 * t) - 4, *CAR)

    def picture(self, t: float) -> np.ndarray:
        picture = self._ground.copy()
        first = self.car(t)
        for x, y, colour in (
            (first.cx, first.cy, (40, 44, 190)),
            (900 - 60 * t, 530 - 0.197 * (920 - 60 * t), (190, 186, 180)),
            (250 + 50 * t, 580 - 0.197 * (270 + 50 * t), (60, 60, 62)),
        ):
            body = cv2.boxPoints(((x, y), CAR, -11.0)).astype(np.int32)
            roof = cv2.boxPoints(((x + 2, y), (22, 17), -11.0)).astype(np.int32)
            cv2.fillConvexPoly(picture, body + (3, 5), (52, 56, 54), cv2.LINE_AA)
            cv2.fillConvexPoly(picture, body, colour, cv2.LINE_AA)
            cv2.fillConvexPoly(picture, roof, tuple(int(0.6 * c) for c in colour), cv2.LINE_AA)
        return picture
