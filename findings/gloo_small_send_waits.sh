#!/bin/sh
# Packages: torch 2.15.0, mpich 5.0.2, mpi4py 4.1.2, numpy 2.4.6.
# Guess: a blocking send of 4 bytes returns at once, as an MPI's eager send does; only large ones wait.
# Seen: gloo's send of 4 bytes returns when the receiver has posted its receive: after 2 s here.
#   MPICH's returns at once. So a program that exchanges small messages by sends first works over the one
#   and cannot over the other.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 mpich==5.0.2 mpi4py==4.1.2 numpy==2.4.6
cat >"$work/gloo.py" <<'END'
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
begin = time.monotonic()
if dist.get_rank() == 0:
    dist.send(torch.ones(1), 1)
    print("gloo:", "waits for the receiver" if time.monotonic() - begin > 1 else "returns at once", flush=True)
else:
    time.sleep(2)
    dist.recv(torch.zeros(1), 0)
dist.destroy_process_group()
END
cat >"$work/mpi.py" <<'END'
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
world.Barrier()
begin = time.monotonic()
if world.rank == 0:
    world.Send(np.ones(1, np.float32), 1)
    print("MPICH:", "waits for the receiver" if time.monotonic() - begin > 1 else "returns at once", flush=True)
else:
    time.sleep(2)
    world.Recv(np.zeros(1, np.float32), 0)
END
seen=$(OMP_NUM_THREADS=1 timeout --foreground 240 "$work/venv/bin/torchrun" --standalone --nproc-per-node 2 \
  "$work/gloo.py" 2>"$work/errors" &&
  timeout --foreground 120 "$work/venv/bin/mpiexec" -n 2 "$work/venv/bin/python" "$work/mpi.py" 2>>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "gloo: waits for the receiver
MPICH: returns at once" ] || { echo "this has changed"; exit 1; }
