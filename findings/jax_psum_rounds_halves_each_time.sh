#!/bin/sh
# Packages: jax and jaxlib 0.10.2, numpy 2.4.6; four CPU devices of a process.
# Guess: psum rounds after each addition in both 16-bit floats: bfloat16 256, 1, 1, 1 stays 256.
# Seen: the two differ. psum of bfloat16 adds in float32 and rounds once: 260 for 259 (8-bit floats the same).
#   psum of float16 rounds each time: 2048, 1, 1, 1 stays 2048, where jnp.sum of the same sharded array is 2052.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$work/program.py" <<'END'
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

mesh = jax.make_mesh((4,), ("ranks",), axis_types=(AxisType.Auto,))
spec = PartitionSpec("ranks")
psum = jax.jit(jax.shard_map(lambda x: lax.psum(x, "ranks"), mesh=mesh, in_specs=spec, out_specs=spec))
for type, large in (("bfloat16", 256), ("float16", 2048), ("float8_e4m3fn", 16)):
    x = jax.device_put(jnp.array([large, 1, 1, 1], type), NamedSharding(mesh, spec))
    print(type, large, "+ 1 + 1 + 1: psum", float(psum(x)[0]), "jnp.sum", float(jax.jit(jnp.sum)(x)))
END
seen=$(XLA_FLAGS=--xla_force_host_platform_device_count=4 JAX_PLATFORMS=cpu timeout --foreground 240 \
  "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "bfloat16 256 + 1 + 1 + 1: psum 260.0 jnp.sum 260.0
float16 2048 + 1 + 1 + 1: psum 2048.0 jnp.sum 2052.0
float8_e4m3fn 16 + 1 + 1 + 1: psum 20.0 jnp.sum 20.0" ] || { echo "this has changed"; exit 1; }
