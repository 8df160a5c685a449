#!/bin/sh
# Packages: jax and jaxlib 0.10.2, numpy 2.4.6; four CPU devices of a process.
# Guess: -0.0 on all devices sums to -0.0, as IEEE 754 has it.
# Seen: psum gives +0.0, so a psum over devices that all hold -0.0 is not the identity; jnp.sum too.
#   A psum over a group of one device keeps the sign.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$work/program.py" <<'END'
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

mesh = jax.make_mesh((4,), ("ranks",))
spec = PartitionSpec("ranks")


def psum(groups):
    call = lambda x: lax.psum(x, "ranks", axis_index_groups=groups)
    return jax.jit(jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))


zeros = jnp.full(4, -0.0)
print("-0.0 on four devices: psum", psum(None)(zeros)[0], "sum of the array", jax.jit(jnp.sum)(zeros))
print("in groups of one device:", psum([[0], [1], [2], [3]])(zeros)[0])
END
seen=$(XLA_FLAGS=--xla_force_host_platform_device_count=4 JAX_PLATFORMS=cpu timeout 240 \
  "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "-0.0 on four devices: psum 0.0 sum of the array 0.0
in groups of one device: -0.0" ] || { echo "this has changed"; exit 1; }
