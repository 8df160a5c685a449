"""What is done to a job. Each fault is a function of a Run (run.py) and its words; it takes the run's victims.

Before the start, BEFORE changes how processes are started: `run.wraps[p]` has words that come before the command of
process p (`run.outer[p]` before those that bring it to its host), `run.more_variables[p]` its environment.
Afterwards, DURING acts, at the time that `when` says; it returns when the thing is done, and run.done_at is when it
began.
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import threading
import time

import strangers

HERE = pathlib.Path(__file__).parent
BEFORE, DURING = {}, {}


def before(function):
    BEFORE[function.__name__.replace("_", "-").lstrip("-")] = function
    return function


def during(function):
    DURING[function.__name__.replace("_", "-").rstrip("-")] = function
    return function


def shell(script):
    """Words that run `script` before the command that follows them."""
    return ["sh", "-c", script + '\nexec "$@"', "sh"]


# --- Processes that end, or stand still -----------------------------------------------------------

@during
def nothing(run):
    time.sleep(0.1)


@during
def kill(run):
    for victim in run.victims:
        victim.kill()


@during
def terminate(run):
    for victim in run.victims:
        victim.kill(signal.SIGTERM)


@during
def one_by_one(run):
    """Deaths that follow each other: in the middle of what the survivors do about the first."""
    for victim in run.victims:
        victim.kill()
        time.sleep(run.random.uniform(0, 0.03))


@during
def tell(run, *words):
    """What campaign_workload.cpp takes: exit, segv, throw, abort, eat, descriptors N, address N."""
    for victim in run.victims:
        run.job.tell(victim, " ".join(words))


@during
def stop(run, seconds):
    for victim in run.victims:
        victim.kill(signal.SIGSTOP)
    run.job.wait(lambda: False, float(seconds))
    for victim in run.victims:
        victim.kill(signal.SIGCONT)


@during
def flicker(run, seconds):
    """Stopped and continued, many times."""
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for victim in run.victims:
            victim.kill(signal.SIGSTOP)
        time.sleep(run.random.uniform(0.001, 0.03))
        for victim in run.victims:
            victim.kill(signal.SIGCONT)
        time.sleep(run.random.uniform(0.001, 0.01))


@during
def stop_kill(run, seconds):
    """Killed while it is stopped."""
    for victim in run.victims:
        victim.kill(signal.SIGSTOP)
    run.job.wait(lambda: False, float(seconds))
    run.done_at = time.monotonic()
    kill(run)


# --- What processes lack --------------------------------------------------------------------------

@before
def limit(run, what, number):
    """limit nofile 20: a limit of the shell's from the start."""
    letter = {"nofile": "n", "address": "v", "processes": "u", "locked": "l", "stack": "s", "file": "f"}[what]
    for victim in run.victims:
        run.wraps[victim] += shell(f"ulimit -{letter} {number}")


@before
def small_shm(run, size):
    """A /dev/shm of this size; 0: one that takes nothing."""
    mount = f"-o size={size}" if size != "0" else "-o ro"
    for victim in run.victims:
        run.wraps[victim] = ["unshare", "-m"] + shell(f"mount -t tmpfs {mount} none /dev/shm") + run.wraps[victim]


@before
def full_disk(run):
    """No byte can be written to the job's folder, where the file is by which ranks meet."""
    run.mounted = run.folder
    run.folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(run.folder)], check=True)
    (run.folder / "filling").write_bytes(b"x" * 4096)


@before
def cgroup(run, size):
    """So much memory, from a cgroup of the first version; the system kills who takes more."""
    root = pathlib.Path("/sys/fs/cgroup/memory")
    if not (root / "memory.limit_in_bytes").exists():
        raise Skipped("there is no memory controller of cgroups' first version")
    for victim in run.victims:
        group = root / f"{run.mark}{victim}"
        group.mkdir()
        run.groups.append(group)
        (group / "memory.limit_in_bytes").write_text(size)
        with contextlib.suppress(OSError):
            (group / "memory.memsw.limit_in_bytes").write_text(size)
        run.outer[victim] += shell(f"echo $$ > {group}/cgroup.procs")


@before
def slow_cpu(run, percent):
    root = pathlib.Path("/sys/fs/cgroup/cpu")
    if not (root / "cpu.cfs_quota_us").exists():
        raise Skipped("there is no cpu controller of cgroups' first version")
    for victim in run.victims:
        group = root / f"{run.mark}{victim}"
        group.mkdir()
        run.groups.append(group)
        (group / "cpu.cfs_quota_us").write_text(str(1000 * int(percent)))
        run.outer[victim] += shell(f"echo $$ > {group}/cgroup.procs")


@before
def nobody(run):
    """A user without rights."""
    for victim in run.victims:
        run.wraps[victim] += ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    run.folder.mkdir(parents=True, exist_ok=True)
    os.chmod(run.folder, 0o777)
    os.chmod(run.folder.parent, 0o755)


@before
def closed(run, *descriptors):
    """closed 1 2: started without these of standard input, output and error."""
    for victim in run.victims:
        run.wraps[victim] += shell("".join(f"exec {d}<&-\n" for d in descriptors))


@before
def apart(run, *spaces):
    """Namespaces of its own: pid, ipc, uts, user, mount."""
    options = [f"--{space}" for space in spaces]
    if "pid" in spaces:
        options += ["--fork", "--mount-proc", "--kill-child"]
    if "user" in spaces:
        options += ["--map-root-user"]
    for victim in run.victims:
        run.wraps[victim] += ["unshare", *options]


@before
def clock(run, step):
    """The clock of the day jumps to and fro by so many seconds (clock_jumps.c)."""
    for victim in run.victims:
        run.more_variables[victim] |= {"LD_PRELOAD": str(run.build / "tests/libclock_jumps.so"), "CLOCK_JUMPS": step}


@before
def late(run, seconds):
    for victim in run.victims:
        run.wraps[victim] += shell(f"sleep {seconds}")


@before
def leftover(run, *variables):
    """Variables that another launcher has left."""
    for victim in run.victims:
        run.more_variables[victim] |= dict(v.split("=", 1) for v in variables)


# --- Networks -------------------------------------------------------------------------------------

@during
def link(run, seconds):
    """The victims' host loses its link for so long."""
    host = run.host_of(run.victims[0].number)
    run.hosts.link(host, False)
    run.job.wait(lambda: run.job.ended(), float(seconds))
    run.hosts.link(host, True)


@during
def flap(run, times):
    host = run.host_of(run.victims[0].number)
    for _ in range(int(times)):
        run.hosts.link(host, False)
        run.job.wait(lambda: False, run.random.uniform(0.01, 0.15))
        run.hosts.link(host, True)
        run.job.wait(lambda: False, run.random.uniform(0.01, 0.15))


@during
def mtu(run, size):
    run.hosts.mtu(run.host_of(run.victims[0].number), int(size))
    run.job.wait(lambda: run.job.ended(), 1)


@during
def rate(run, megabits):
    run.hosts.rate(run.host_of(run.victims[0].number), megabits)
    run.job.wait(lambda: run.job.ended(), 1)


@during
def firewall(run, kind):
    """drop or reset of all TCP to the victims' host, from now on; drop-new, reset-new of new connections alone."""
    what = "tcp flags & (syn | ack) == syn" if kind.endswith("-new") else "meta l4proto tcp"
    how = "drop" if kind.startswith("drop") else "reject with tcp reset"
    run.hosts.rules(run.host_of(run.victims[0].number), f"ip saddr 10.77.0.0/24 {what} {how}")
    run.job.wait(lambda: run.job.ended(), 1)


@during
def wire_on(run, *words):
    """What switch.py takes, several with commas between them; until the end."""
    for line in " ".join(words).split(","):
        run.hosts.tell(line)


@during
def wire(run, *words):
    """For a second."""
    wire_on(run, *words)
    run.job.wait(lambda: run.job.ended(), 1)
    run.hosts.tell("clear")


@during
def half_open(run, seconds):
    """Nothing comes from the victims' host any more, though all goes there."""
    host = run.host_of(run.victims[0].number)
    for other in range(run.hosts.count):
        run.hosts.tell(f"cut {host} {other}")
    run.job.wait(lambda: run.job.ended(), float(seconds))
    run.hosts.tell("clear")


@during
def replay(run, mutate="no"):
    """A stranger says again what others have said when they connected, to whoever listens; mutated: with a bit
    changed."""
    file = run.folder / "recorded"
    run.hosts.record(file)
    strangers.replay(run, file, mutate == "mutated")


@during
def strangers_(run, kind):
    """kind: garbage, silent, trickle, http, huge, many."""
    strangers.visit(run, kind)


# --- Other jobs -----------------------------------------------------------------------------------

@during
def second_job(run):
    """Another job with the same settings, beside this one; it has to come to a good end, too."""
    other = run.start_another()
    thread = threading.Thread(target=run.drive_to_end, args=(other,))
    thread.start()
    run.job.wait(lambda: not thread.is_alive(), 20)
    thread.join()


class Skipped(Exception):
    """This machine cannot do it."""
