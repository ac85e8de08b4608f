"""Runs a benchmark: ``python -m benchmarks COMMAND [options]``, in the checkout."""

import sys

from efftam_ros.tools.cli import Program

MODULES = {
    "compare": "compare",
    "crossings": "crossings",
    "peers": "peers.command",
    "latency": "latency",
    "transport": "transport",
    "idle_gpu": "idle_gpu",
    "operator_page": "operator_page",
}
main = Program("python -m benchmarks", "Measurements for maintainers.", "benchmarks", MODULES).main

if __name__ == "__main__":
    sys.exit(main())
