#!/bin/sh
# Packages: deepspeed 0.19.8, torch 2.15.0, numpy 2.4.6, setuptools 84.2.1, wheel 0.48.0, ninja 1.13.2; a C++ compiler
#   builds DeepSpeed's shared memory operator.
# Guess: inference_all_reduce(x, op=MAX) is a maximum, and of int32 and float64 a sum, as all_reduce is: what the
#   shared memory cannot do goes over gloo, or is refused.
# Seen: on CPUs that have the operator, the op is not looked at: MAX and AVG are sums. int32 and float64 stay as they
#   were on each rank. No error, no warning. all_reduce is right. A job that ends well leaves its buffers in /dev/shm.
set -eu
port=$(python3 -c "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])")
buffers="/dev/shm/deepspeed_allreduce_buffer_*_localhost_${port}_?"
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work" $buffers' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 numpy==2.4.6 setuptools==84.2.1 wheel==0.48.0 ninja==1.13.2
"$work/venv/bin/pip" install -q --no-compile --no-build-isolation deepspeed==0.19.8
cat >"$work/program.py" <<'END'
import deepspeed
import deepspeed.comm as dist
import torch
from deepspeed.comm import ReduceOp

deepspeed.init_distributed("gloo", verbose=False)
for type in (torch.float32, torch.int32, torch.float64):
    for op in (ReduceOp.SUM, ReduceOp.MAX):
        fast = torch.full((3,), dist.get_rank() + 1).to(type)
        usual = fast.clone()
        dist.inference_all_reduce(fast, op=op)
        dist.all_reduce(usual, op=op)
        if dist.get_rank() == 0:
            print(type, op.name, "inference_all_reduce %g all_reduce %g" % (fast[0], usual[0]), flush=True)
deepspeed.comm.destroy_process_group()
END
seen=$(PATH="$work/venv/bin:$PATH" TORCH_EXTENSIONS_DIR="$work" DS_ACCELERATOR=cpu LOCAL_SIZE=4 OMP_NUM_THREADS=1 \
  timeout --foreground 900 "$work/venv/bin/torchrun" --master-addr localhost --master-port "$port" \
  --nproc-per-node 4 "$work/program.py" 2>"$work/errors" | grep "^torch") || { cat "$work/errors"; exit 1; }
seen="$seen
buffers left: $(ls $buffers | wc -l)"
echo "$seen"
[ "$seen" = "torch.float32 SUM inference_all_reduce 10 all_reduce 10
torch.float32 MAX inference_all_reduce 10 all_reduce 4
torch.int32 SUM inference_all_reduce 1 all_reduce 10
torch.int32 MAX inference_all_reduce 1 all_reduce 4
torch.float64 SUM inference_all_reduce 1 all_reduce 10
torch.float64 MAX inference_all_reduce 1 all_reduce 4
buffers left: 4" ] || { echo "this has changed"; exit 1; }
