"""`python -m training COMMAND`: trains and evaluates the networks that ship; see ``--help``."""

import sys
from collections.abc import Sequence

from efftam_ros.tools.cli import Program

IDENTITY = Program(
    "python -m training identity",
    "The network that tells individuals apart.",
    {step: f"training.identity.{step}" for step in ("data", "train", "judge", "export")},
)
BOX = Program(
    "python -m training box",
    "The head that places the edges of the box.",
    {step: f"training.box.{step}" for step in ("record", "fit", "export")},
)
JUDGE = Program(
    "python -m training judge",
    "The probability that a candidate is the target.",
    {step: f"training.judge.{step}" for step in ("record", "fit", "report", "returns")},
)
MODULES = {
    "collect": "training.collect",
    "label": "training.label",
    "data": "training.material",
    "train": "training.run",
    "evaluate": "training.evaluate",
    "disappearances": "training.reacquisition.judge",
    "export": "training.ship",
    "identity": "training.identity",
    "box": "training.box",
    "judge": "training.judge",
}
PARTS = {"identity": IDENTITY, "judge": JUDGE, "box": BOX}
TRAINING = Program("python -m training", "Trains and evaluates the networks that ship.", MODULES)


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    part = PARTS.get(words[0]) if words else None
    return TRAINING.main(words) if part is None else part.main(words[1:])


if __name__ == "__main__":
    sys.exit(main())
