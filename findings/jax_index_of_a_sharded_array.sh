#!/bin/sh
# Packages: jax and jaxlib 0.10.2, numpy 2.4.6; four CPU devices of a process.
# Guess: x[1] is the element's bits, whether x is on one device or sharded over four: nothing is computed.
# Seen: of a sharded array x[1], jnp.take and x[jnp.array([1, 6])] are sums over the devices of the element and of
#   zeros. So -0.0 becomes 0.0, and 1e-42 (subnormal, which such a sum flushes) becomes 0. Slices, jnp.roll and
#   np.asarray keep both. A test that reads a sharded result by x[0] sees another zero than is there.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$work/program.py" <<'END'
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

mesh = jax.make_mesh((4,), ("ranks",), axis_types=(AxisType.Auto,))
reads = {"x[1]": lambda x: x[1], "take": lambda x: jnp.take(x, jnp.array([1, 6])), "x[1:3]": lambda x: x[1:3],
         "roll": lambda x: jnp.roll(x, 1), "asarray": np.asarray}
for value in (-0.0, 1e-42, 1.5):
    plain = jnp.asarray(np.full(8, value, np.float32))
    sharded = jax.device_put(plain, NamedSharding(mesh, PartitionSpec("ranks")))
    said = []
    for name, read in reads.items():
        seen = np.asarray(read(sharded))
        same = seen.tobytes() == np.asarray(read(plain)).tobytes()
        said.append(name + (" kept" if same else " %g" % seen.reshape(-1)[0]))
    print(f"{value}:", ", ".join(said))
END
seen=$(XLA_FLAGS=--xla_force_host_platform_device_count=4 JAX_PLATFORMS=cpu timeout --foreground 240 \
  "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "-0.0: x[1] 0, take 0, x[1:3] kept, roll kept, asarray kept
1e-42: x[1] 0, take 0, x[1:3] kept, roll kept, asarray kept
1.5: x[1] kept, take kept, x[1:3] kept, roll kept, asarray kept" ] || { echo "this has changed"; exit 1; }
