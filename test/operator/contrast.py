"""How well text can be read, by WCAG 2."""

from __future__ import annotations


def contrast(*colours: tuple[float, float, float] | str) -> float:
    """Of two colours: red, green and blue in 0..255, or CSS's rgb(...)."""
    low, high = sorted(map(_luminance, colours))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: tuple[float, float, float] | str) -> float:
    parts = [float(v) for v in colour[4:-1].split(",")] if isinstance(colour, str) else colour
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in parts)]
    return sum(a * b for a, b in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def rgb_of(css: str) -> tuple[float, ...]:
    """Red, green, blue in 0..255, and alpha where it is given."""
    return tuple(float(v) for v in css[css.index("(") + 1 : -1].split(","))


def over(grounds: list[str], picture: tuple[float, ...]) -> tuple[float, ...]:
    """The colour of panels that lie on each other, on a picture; ``grounds``: the uppermost first."""
    for ground in reversed(grounds):
        *rgb, alpha = (*rgb_of(ground), 1.0)[:4]
        picture = tuple(alpha * a + (1 - alpha) * b for a, b in zip(rgb, picture, strict=True))
    return picture
