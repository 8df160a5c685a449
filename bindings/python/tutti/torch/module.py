"""The backend's library, opened by ctypes: a function that makes a backend, and what it was built for.

The library knows nothing of Python's objects. A process group carries the store in and the backend out:
PyTorch finds it by a name from C++ and from Python.
"""

from __future__ import annotations

import ctypes
import datetime
import itertools
import os
import pathlib
import threading

import torch
from torch._C import _distributed_c10d as _c10d

_numbers = itertools.count()


def _offset_of_tensor() -> int:
    """Where a torch.Tensor has its at::Tensor, a pointer: that differs between versions of Python and PyTorch."""
    x = torch.empty(0)
    step = ctypes.sizeof(ctypes.c_void_p)
    for offset in range(object.__basicsize__, torch.Tensor.__basicsize__, step):
        if ctypes.c_void_p.from_address(id(x) + offset).value == x._cdata:
            return offset
    raise RuntimeError(f"tutti.torch: the memory of a tensor of PyTorch {torch.__version__} is not where it was")


class Module:
    """The library in a file."""

    def __init__(self, file: pathlib.Path):
        # PyDLL: the calls hold the interpreter's lock, and their exceptions are raised here.
        library = ctypes.PyDLL(str(file))
        library.tutti_c10d_torch_version.restype = ctypes.c_char_p
        library.tutti_c10d_set_main_thread.argtypes = [ctypes.c_ulong]
        library.tutti_c10d_set_main_thread.restype = None
        self._create = library.tutti_c10d_create
        self._create.restype = None
        self._create.argtypes = [
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int64,
            ctypes.c_bool,
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.c_size_t,
            ctypes.c_int,
        ]
        self._compress = library.tutti_c10d_compress
        self._compress.restype = None
        self._compress.argtypes = [ctypes.c_char_p, ctypes.c_bool]
        self._all_reduce = library.tutti_c10d_all_reduce
        self._all_reduce.restype = ctypes.py_object
        self._all_reduce.argtypes = [ctypes.c_char_p, ctypes.py_object, ctypes.py_object, ctypes.c_size_t]
        self.torch_version = library.tutti_c10d_torch_version().decode()
        library.tutti_c10d_set_main_thread(threading.main_thread().ident)

    def create(
        self,
        store,
        rank: int,
        size: int,
        timeout: datetime.timedelta,
        enable_reconfigure: bool,
        name: str,
        global_ranks: list[int],
        invariant: bool | None,
    ):
        """A backend, as Python has it: torch.distributed's Backend."""
        place = f"tutti:{os.getpid()}:{next(_numbers)}"
        group = _c10d.ProcessGroup(store, rank, size)
        _c10d._register_process_group(place, group)
        try:
            self._create(
                place.encode(),
                rank,
                size,
                timeout // datetime.timedelta(milliseconds=1),
                enable_reconfigure,
                name.encode(),
                (ctypes.c_uint64 * len(global_ranks))(*global_ranks),
                len(global_ranks),
                -1 if invariant is None else invariant,
            )
            return group._get_backend(torch.device("cpu"))
        finally:
            _c10d._unregister_process_group(place)

    def compress(self, group, compressed: bool) -> None:
        self._compress(group.group_name.encode(), compressed)

    def all_reduce(self, group):
        return self._all_reduce(group.group_name.encode(), torch.Tensor, torch.nn.Parameter, _offset_of_tensor())
