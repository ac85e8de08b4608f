"""A killed process must not stop the tests that come after it."""

from __future__ import annotations

import ctypes
import os

import pytest
from support.dead_locks import release_dead_locks

DOMAIN = 232  # no test's
PORT = 7400 + 250 * DOMAIN + 11


@pytest.fixture
def semaphore():
    """Of a port, unlocked."""
    library, name = ctypes.CDLL(None), f"/fastrtps_port{PORT}_mutex".encode()
    library.sem_open.restype = ctypes.c_void_p
    made = ctypes.c_void_p(library.sem_open(name, os.O_CREAT | os.O_RDWR, 0o600, 1))
    yield library, made
    library.sem_close(made)
    library.sem_unlink(name)


def test_what_a_dead_process_holds_is_released(semaphore):
    library, made = semaphore
    assert release_dead_locks(DOMAIN) == []
    assert library.sem_trywait(made) == 0
    assert library.sem_trywait(made) == -1
    assert release_dead_locks(DOMAIN) == [PORT]
    assert library.sem_trywait(made) == 0


def test_another_domain_s_locks_are_left_alone(semaphore):
    library, made = semaphore
    assert library.sem_trywait(made) == 0
    assert release_dead_locks(DOMAIN - 1) == []
    assert library.sem_trywait(made) == -1
