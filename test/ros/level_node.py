"""The tracker node as a process of its own, with a `LevelPipeline` in the place of the network."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def open_level_pipeline(config):
    from level_pipeline import LOST, LevelPipeline

    from efftam_ros.core.errors import PipelineLostError

    time.sleep(float(os.environ.get("TEST_OPEN_DELAY", "0")))
    if "TEST_LOST_AT_START" in os.environ:
        raise PipelineLostError(LOST)
    return LevelPipeline(float(os.environ.get("TEST_FRAME_DELAY", "0")), config.max_targets)


if __name__ == "__main__":
    from efftam_ros.ros.main import main

    sys.exit(main("efftam_tracker", pipeline_factory=open_level_pipeline))
