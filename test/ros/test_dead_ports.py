"""A killed process must not stop the tests that come after it."""

from __future__ import annotations

import ctypes
import os

import pytest

from efftam_ros.ros.common.dead_ports import MEMORY, remove_dead_ports

DOMAIN = 232  # no test's
PORT = 7400 + 250 * DOMAIN + 11


@pytest.fixture
def port():
    """Its files, and its semaphore, which is unlocked."""
    library, name = ctypes.CDLL(None), f"/fastrtps_port{PORT}_mutex".encode()
    library.sem_open.restype = ctypes.c_void_p
    semaphore = ctypes.c_void_p(library.sem_open(name, os.O_CREAT | os.O_RDWR, 0o600, 1))
    files = MEMORY / f"fastrtps_port{PORT}", MEMORY / f"sem.fastrtps_port{PORT}_mutex"
    files[0].touch()
    yield files, lambda: library.sem_trywait(semaphore)
    library.sem_close(semaphore)
    for file in files:
        file.unlink(missing_ok=True)


def test_a_port_that_a_dead_process_holds_is_removed(port):
    files, lock = port
    assert remove_dead_ports(DOMAIN) == []
    assert lock() == 0
    assert remove_dead_ports(DOMAIN) == [PORT]
    assert not any(file.exists() for file in files)


def test_another_domain_s_ports_are_left_alone(port):
    files, lock = port
    assert lock() == 0
    assert remove_dead_ports(DOMAIN - 1) == []
    assert all(file.exists() for file in files)
