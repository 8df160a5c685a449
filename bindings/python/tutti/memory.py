"""Window memory, which the other ranks of a host can read directly: single arrays, or the whole program's."""

from __future__ import annotations

import ctypes
import math
import operator
import os
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex

from tutti import _tutti
from tutti.errors import InvalidUsage, SystemFailure
from tutti.installation import FOLDER

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


def use_windows() -> None:
    """All large arrays of this program lie in windows from now on, those of NumPy and PyTorch among them.

    The same as `tutti run --windows`, under any launcher. Call it first in the program, before it makes
    a communicator or a thread: the program begins again, as the same process, with `malloc()` from
    libtutti_windows.so. In that second run the call does nothing. Raises InvalidUsage where the program
    cannot begin again: in notebooks, at a prompt, from standard input, with other threads.
    """
    if hasattr(ctypes.CDLL(None), "tutti_window_heap_1"):
        return
    places = [FOLDER / "lib/tutti", FOLDER / "lib"]
    library = next((p / "libtutti_windows.so" for p in places if (p / "libtutti_windows.so").exists()), None)
    if library is None:
        raise SystemFailure(f"use_windows(): there is no libtutti_windows.so in {places[0]}: install tutti anew")
    preloads = os.environ.get("LD_PRELOAD", "")
    by_hand = f"set LD_PRELOAD={library} before it starts"
    if str(library) in preloads:
        raise SystemFailure(f"use_windows(): LD_PRELOAD names {library}, but the system did not load it")
    if sys.argv[0] in ("", "-") or sys.flags.interactive or "ipykernel" in sys.modules:
        raise InvalidUsage(f"use_windows(): a program that comes from a prompt or a pipe cannot begin again: {by_hand}")
    if threading.active_count() > 1:
        raise InvalidUsage(f"use_windows(): the program has threads already: call it first, or {by_hand}")
    os.environ["LD_PRELOAD"] = f"{library}:{preloads}" if preloads else str(library)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


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
