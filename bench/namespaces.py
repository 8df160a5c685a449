"""Hosts for benchmarks: network namespaces of this machine that bridges join. Needs root and iproute2."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

from programs import run

# Runs a rank's program in its namespace; for `sh -c`, under `tutti run` on one host.
IN_A_NAMESPACE = """
unset TUTTI_UNIQUE_ID
export TUTTI_ID_FILE=$ID
exec ip netns exec $SPACE$((TUTTI_RANK / EACH)) "$0" "$@"
"""


def delete(space):
    """Ends what runs there, and tries again where that takes long."""
    for _ in range(60):
        if not pathlib.Path("/run/netns", space).exists():
            return
        pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL).returncode != 0:
            time.sleep(1)
    print(f"the network namespace {space} is left", file=sys.stderr)


@contextlib.contextmanager
def namespaces(count, links=1, mbit=None):
    """`count` hosts with `links` links each, of `mbit` Mbit/s if given; yields their common name, which their
    numbers follow. Link l is eth<l>, in a network of its own; there host h has the address 10.<98 + l>.0.<h + 1>.
    They are deleted at the end, also after Ctrl-C."""
    if os.geteuid() != 0:
        raise SystemExit("hosts are network namespaces, which root alone can make")
    name = f"tti{os.getpid()}"
    switch = f"{name}s"
    made = []
    try:
        for space in [switch] + [f"{name}{h}" for h in range(count)]:
            made.append(space)
            run(["ip", "netns", "add", space])
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
        handlers = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)}
        for space in made:
            delete(space)
        for interruption, handler in handlers.items():
            signal.signal(interruption, handler)


def run_on_hosts(tutti, each, command, name, folder, **environment):
    """The output of a command on the ranks of `tutti run ...`, `each` on a host."""
    id_file = pathlib.Path(folder) / "id"
    id_file.unlink(missing_ok=True)
    return run([*tutti, "sh", "-c", IN_A_NAMESPACE, *command], SPACE=name, EACH=str(each), ID=str(id_file),
               **environment)
