"""Host memory as XLA wants it: a CPU takes over without a copy what starts on a 64-byte border."""

from typing import Any

import numpy as np

_ALIGNMENT = 64


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array on a 64-byte border."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def memoryview_of(array: np.ndarray) -> memoryview:
    """The bytes of a contiguous array."""
    raw: Any = array.reshape(-1).view(np.uint8)
    return memoryview(raw)


def aligned(array: np.ndarray) -> np.ndarray:
    """The array itself if it is contiguous and on a 64-byte border, else a copy that is."""
    if array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0:
        return array
    return aligned_copy(array, array.dtype)


def aligned_copy(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A contiguous copy on a 64-byte border, its numbers cast to dtype."""
    copy = aligned_empty(array.shape, dtype)
    np.copyto(copy, array, casting="unsafe")
    return copy
