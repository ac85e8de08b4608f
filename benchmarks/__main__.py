"""Runs a benchmark: ``python -m benchmarks COMMAND [options]``, in the checkout."""

import sys

from efftam_ros.tools.cli import Program

MODULES = {
    "compare": "benchmarks.compare",
    "crossings": "benchmarks.crossings",
    "peers": "benchmarks.peers.command",
    "frontier": "benchmarks.frontier",
    "latency": "benchmarks.latency",
    "transport": "benchmarks.transport",
    "idle_gpu": "benchmarks.idle_gpu",
    "operator_page": "benchmarks.operator_page",
    "page_states": "benchmarks.page_states",
}
main = Program("python -m benchmarks", "Measurements for maintainers.", MODULES).main

if __name__ == "__main__":
    sys.exit(main())
