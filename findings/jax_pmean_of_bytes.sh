#!/bin/sh
# Packages: jax and jaxlib 0.10.2, numpy 2.4.6; four CPU devices of a process.
# Guess: pmean of 200 on four devices is 200: it gives floats for integers, as jnp.mean does.
# Seen: for uint8 it is 8.0: the sum wraps in 8 bits (800 modulo 256 is 32), and only then becomes a float32
#   and is divided. int8 likewise: 100 becomes -28. jnp.mean of the same array over the same devices is right.
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
pmean = jax.jit(jax.shard_map(lambda x: lax.pmean(x, "ranks"), mesh=mesh, in_specs=spec, out_specs=spec))
for type, value in (("uint8", 200), ("int8", 100), ("int32", 100)):
    x = jax.device_put(jnp.full(4, value, type), NamedSharding(mesh, spec))
    print(type, value, "pmean", pmean(x)[0], "jnp.mean", jax.jit(jnp.mean)(x))
END
seen=$(XLA_FLAGS=--xla_force_host_platform_device_count=4 JAX_PLATFORMS=cpu timeout --foreground 240 \
  "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "uint8 200 pmean 8.0 jnp.mean 200.0
int8 100 pmean -28.0 jnp.mean 100.0
int32 100 pmean 100.0 jnp.mean 100.0" ] || { echo "this has changed"; exit 1; }
