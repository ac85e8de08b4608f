"""Runs a node's callbacks in a separate thread, for programs whose main thread does something else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node


@contextmanager
def spinning(node: Node) -> Iterator[None]:
    """Run the node's callbacks in a thread until the block ends; the node is destroyed then."""
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            executor.spin_once(timeout_sec=0.1)

    thread = threading.Thread(target=spin, name="ros", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        executor.shutdown()
        node.destroy_node()
