"""Arrays in window memory, which the other ranks of a host can read directly."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex

from tutti import _tutti

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike


def empty(
    shape: SupportsIndex | Iterable[SupportsIndex], dtype: DTypeLike = "float32"
) -> np.ndarray:
    """A numpy array in window memory, filled with zeros by the system.

    Collectives on it are the fastest: other ranks of the host read it where it is. `dtype`: whatever
    numpy takes, types of ml_dtypes included, but no Python objects.
    """
    import numpy as np

    try:
        sizes = (operator.index(shape),)
    except TypeError:
        sizes = tuple(map(operator.index, shape))
    dtype = np.dtype(dtype)
    if any(n < 0 for n in sizes):
        raise ValueError(f"the shape is {sizes}: negative dimensions are not allowed")
    if dtype.hasobject or dtype.itemsize == 0 or dtype.subdtype:
        raise TypeError(f"window memory has no elements of type {dtype}: they are objects, or have no size")
    count = math.prod(sizes) * dtype.itemsize
    try:
        memory = _tutti._Memory(min(count, sys.maxsize))
    except MemoryError as error:
        raise MemoryError(
            f"there are no {count} bytes of window memory for an array of shape {sizes}, type {dtype}: {error}"
        ) from None
    return np.frombuffer(memory, dtype=np.uint8).view(dtype).reshape(sizes)


zeros = empty


def _like(x, shape):
    """A new array of the kind and type of `x`: for the results of calls."""
    if hasattr(x, "new_empty"):  # a torch tensor
        return x.new_empty(shape)
    if hasattr(x, "__cuda_array_interface__"):
        import cupy

        return cupy.empty(shape, x.dtype)
    import numpy as np

    dtype = getattr(x, "dtype", None)
    if not isinstance(dtype, np.dtype):
        # (numpy takes bytes for one string.)
        x = memoryview(x) if isinstance(x, bytes) else x
        dtype = (np.from_dlpack(x) if hasattr(x, "__dlpack__") else np.asarray(x)).dtype
    return empty(shape, dtype)
