#!/bin/sh
# Packages: jax and jaxlib 0.10.2, numpy 2.4.6; four CPU devices of a process.
# Guess: -0.0 on all devices sums to -0.0, as IEEE 754 has it.
# Seen: psum gives +0.0, also over groups of one device, where nothing is added: it is not the identity there.
#   jnp.sum of the array likewise.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$work/program.py" <<'END'
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, PartitionSpec

mesh = jax.make_mesh((4,), ("ranks",), axis_types=(AxisType.Auto,))
spec = PartitionSpec("ranks")


def psum(groups):
    call = lambda x: lax.psum(x, "ranks", axis_index_groups=groups)
    return jax.jit(jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))


zeros = jnp.full(4, -0.0)
print("four devices: psum", np.asarray(psum(None)(zeros))[0], "jnp.sum", np.asarray(jax.jit(jnp.sum)(zeros)))
print("groups of one device: psum", np.asarray(psum([[0], [1], [2], [3]])(zeros))[0], "of", np.asarray(zeros)[0])
END
seen=$(XLA_FLAGS=--xla_force_host_platform_device_count=4 JAX_PLATFORMS=cpu timeout --foreground 240 \
  "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "four devices: psum 0.0 jnp.sum 0.0
groups of one device: psum 0.0 of -0.0" ] || { echo "this has changed"; exit 1; }
