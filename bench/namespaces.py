"""Hosts for benchmarks: network namespaces of this machine that bridges join. Needs root and iproute2."""
import contextlib
import os
import pathlib
import subprocess

# Runs a rank's program in its namespace; for `sh -c`, under `tutti run` on one host.
IN_A_NAMESPACE = """
unset TUTTI_UNIQUE_ID
export TUTTI_ID_FILE=$ID
exec ip netns exec $SPACE$((TUTTI_RANK / EACH)) "$0" "$@"
"""


def run(command, **environment):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600,
                          env=os.environ | environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout[-2000:]}{done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def namespaces(count, links=1, mbit=None):
    """`count` hosts with `links` links each, of `mbit` Mbit/s if given; yields their common name, which their
    numbers follow. Link l is eth<l>, in a network of its own."""
    if os.geteuid() != 0:
        raise SystemExit("hosts are network namespaces, which root alone can make")
    name = f"tti{os.getpid()}"
    switch = f"{name}s"
    made = []
    try:
        for space in [switch] + [f"{name}{h}" for h in range(count)]:
            run(["ip", "netns", "add", space])
            made.append(space)
            run(["ip", "-n", space, "link", "set", "lo", "up"])
        for link in range(links):
            run(["ip", "-n", switch, "link", "add", f"br{link}", "type", "bridge"])
            run(["ip", "-n", switch, "link", "set", f"br{link}", "up"])
        for h in range(count):
            for link in range(links):
                own, port, space = f"eth{link}", f"to{h}.{link}", f"{name}{h}"
                run(["ip", "link", "add", own, "netns", space, "type", "veth", "peer", "name", port,
                     "netns", switch])
                run(["ip", "-n", space, "addr", "add", f"10.{98 + link}.0.{h + 1}/24", "dev", own])
                run(["ip", "-n", space, "link", "set", own, "up"])
                run(["ip", "-n", switch, "link", "set", port, "master", f"br{link}", "up"])
                if mbit:
                    run(["tc", "-n", space, "qdisc", "add", "dev", own, "root", "tbf", "rate", f"{mbit}mbit",
                         "burst", "128k", "latency", "50ms"])
        yield name
    finally:
        for space in made:
            run(["ip", "netns", "del", space])


def run_on_hosts(tutti, each, command, name, folder, **environment):
    """The output of a command on the ranks of `tutti run ...`, `each` on a host."""
    id_file = pathlib.Path(folder) / "id"
    id_file.unlink(missing_ok=True)
    return run([*tutti, "sh", "-c", IN_A_NAMESPACE, *command], SPACE=name, EACH=str(each), ID=str(id_file),
               **environment)
