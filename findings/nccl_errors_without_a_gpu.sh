#!/bin/sh
# Packages: nvidia-nccl-cu13 2.32.3, on a machine without a GPU.
# Guess: NCCL checks what it is given first: a communicator of 0 ranks, or rank 5 of 2, is ncclInvalidArgument (4).
#   An interface that does not exist (NCCL_SOCKET_IFNAME) is a system error (2). ncclCommFinalize(NULL) is 4.
# Seen: the wrong arguments are ncclUnhandledCudaError (1), the same as right ones: without a GPU a program cannot
#   test its handling. The interface is ncclInvalidUsage (5). ncclCommFinalize(NULL) succeeds, ncclCommCount(NULL)
#   is 4.
set -eu
if [ -e /dev/nvidiactl ]; then echo "this machine has a GPU: not asked"; exit 0; fi
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --no-deps nvidia-nccl-cu13==2.32.3
cat >"$work/program.py" <<'END'
import ctypes
import os
import pathlib
import sys


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


nccl = ctypes.CDLL(str(next(pathlib.Path(sys.prefix).rglob("libnccl.so.2"))))
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
id, comm, count = UniqueId(), ctypes.c_void_p(), ctypes.c_int()
got = nccl.ncclGetUniqueId(ctypes.byref(id))
if "NCCL_SOCKET_IFNAME" in os.environ:
    print("an id from an interface that is not there:", got)
else:
    print("an id:", got)
    for rank, ranks in ((0, 1), (0, 0), (5, 2)):
        print("rank", rank, "of", ranks, "->", nccl.ncclCommInitRank(ctypes.byref(comm), ranks, id, rank))
    print("ncclCommFinalize(NULL)", nccl.ncclCommFinalize(None))
    print("ncclCommCount(NULL)", nccl.ncclCommCount(None, ctypes.byref(count)))
END
seen=$(timeout --foreground 120 "$work/venv/bin/python" "$work/program.py" 2>"$work/errors" &&
  NCCL_SOCKET_IFNAME=absent timeout --foreground 120 "$work/venv/bin/python" "$work/program.py" 2>>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "an id: 0
rank 0 of 1 -> 1
rank 0 of 0 -> 1
rank 5 of 2 -> 1
ncclCommFinalize(NULL) 0
ncclCommCount(NULL) 4
an id from an interface that is not there: 5" ] || { echo "this has changed"; exit 1; }
