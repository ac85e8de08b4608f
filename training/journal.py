"""Log of a training run: one JSON line per report, and a plot of loss and validation overlap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Journal:
    """Writes ``log.jsonl`` and ``progress.png`` in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._path, self._plot = folder / "log.jsonl", folder / "progress.png"

    def write(self, kind: str, **values: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"kind": kind, **values}) + "\n")

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return all reports of this kind, oldest first."""
        if not self._path.exists():
            return []
        lines = (json.loads(line) for line in self._path.read_text().splitlines())
        return [line for line in lines if line["kind"] == kind]

    def plot(self) -> None:
        """Write the plot of losses and of validation scores over the steps."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

        training, validation = self.read("train"), self.read("validation")
        figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 7), sharex=True, layout="constrained")
        for name in ("loss", "mask", "iou", "presence"):
            top.plot([r["step"] for r in training], [r[name] for r in training], label=name)
        top.set_yscale("log")
        top.set_ylabel("loss, training clips")
        top.legend()
        curves = {
            "overlap": "mask overlap",
            "balanced_accuracy": "present/absent, balanced",
            "ranked_first": "likest cell lies on the target",
        }
        for name, label in curves.items():
            bottom.plot([r["step"] for r in validation], [r[name] for r in validation], "o-", label=label)
        bottom.set_ylabel("held-out clips")
        bottom.set_xlabel("step")
        bottom.set_ylim(0, 1)
        bottom.grid(alpha=0.3)
        bottom.legend(loc="lower right")
        figure.savefig(self._plot, dpi=110)
        plt.close(figure)
