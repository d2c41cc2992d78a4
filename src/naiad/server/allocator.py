"""How the C library's allocator treats large blocks in a server's process.

Owns that setting, which holds for the whole process. Only glibc has it; elsewhere nothing changes.
"""

from __future__ import annotations

import ctypes

# mallopt's names for its parameters, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

# The most that glibc takes: larger blocks are always mapped anew.
LARGEST_KEPT_BLOCK_BYTES = 32 << 20
MOST_KEPT_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """Keep freed blocks of tensors for the next ones instead of giving their pages back each time; return whether it could.

    A fresh page costs a fault, which for a tensor of 600 kB takes longer than copying it; see docs/decisions.md.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    is_set = mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BLOCK_BYTES) and mallopt(_M_TRIM_THRESHOLD, MOST_KEPT_BYTES)
    return bool(is_set)


def give_back_freed_memory() -> None:
    """Give the pages of freed blocks back to the system, but for what `keep_freed_memory` keeps at the end of the heap.

    Each thread that loads a model may get a heap of its own, in which the weights of models that are gone would stay. Takes
    milliseconds; for threads that aren't the loop's.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim.argtypes = [ctypes.c_size_t]
    trim(MOST_KEPT_BYTES)
