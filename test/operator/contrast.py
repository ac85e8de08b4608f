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
