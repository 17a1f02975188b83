"""Has the C library keep the memory of arrays that are freed, for the next ones."""

from __future__ import annotations

import ctypes
import os
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
"""Numbers of the parameters in glibc's ``malloc.h``."""

MORE_AT_ONCE = 2**26
"""Bytes that the heap asks the system for beyond what it needs."""


def keep_freed_memory() -> None:
    """Has freed memory of arrays and tensors kept rather than given back to the system.

    By default what is larger than 128 KB to 32 MB is mapped anew each time, and the kernel clears each page of it when
    it is first written to, which takes longer than most of what is done with such an array. What the process holds at
    most stays the same, but it no longer shrinks. With other C libraries than glibc nothing changes, nor where the
    environment tunes its malloc (``MALLOC_*``, ``GLIBC_TUNABLES``).
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MMAP_MAX, 0)  # nothing is mapped for one array alone
        mallopt(TRIM_THRESHOLD, -1)  # and the end of the heap is never given back
        mallopt(TOP_PAD, MORE_AT_ONCE)
