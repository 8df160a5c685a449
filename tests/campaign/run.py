"""One run: a scenario with a seed, from the start of its processes to what is left of them."""
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import threading
import time

import faults
import judge
from hosts import Hosts
from job import Job

# place: (ranks of a process, hosts as namespaces, whether a switch of our own joins them, ranks of a pretended host)
PLACES = {
    "processes": (1, 0, False, 0),
    "threads": (0, 0, False, 0),
    "pairs": (2, 0, False, 0),
    "apart": (1, 0, False, 1),
    "apart-pairs": (1, 0, False, 2),
    "hosts": (1, 2, False, 0),
    "hosts-pairs": (2, 2, False, 0),
    "three-hosts": (1, 3, False, 0),
    "wires": (1, 2, True, 0),
}
MORTAL = {"kill", "terminate", "one-by-one", "stop-kill"}
MORTAL_WORDS = {"exit", "_exit", "segv", "throw", "eat"}


class Kept(threading.local):
    """What a thread keeps for its next run: hosts take a quarter of a second to make."""

    def __init__(self):
        self.hosts = {}


kept = Kept()
all_hosts = []


def take_hosts(count, wires, seed):
    if count == 0:
        return None
    hosts = kept.hosts.get((count, wires))
    if hosts is None:
        hosts = kept.hosts[count, wires] = Hosts(count, wires)
        all_hosts.append(hosts)
        if wires:
            hosts.reset(seed)
    else:
        hosts.reset(seed)
    return hosts


class Run:
    numbers = iter(range(1 << 60))
    lock = threading.Lock()

    def __init__(self, scenario, seed, build, folder):
        with Run.lock:
            number = next(Run.numbers)
        self.scenario, self.seed, self.build = scenario, seed, pathlib.Path(build)
        self.mark = f"campaign-{os.getpid()}-{number}-"
        self.folder = pathlib.Path(folder) / self.mark
        self.random = random.Random(f"{scenario.name}:{seed}")
        self.notes, self.groups, self.mounted = {}, [], None
        self.others = []
        self.ranks = int(scenario.ranks)
        self.each, self.host_count, self.wires, self.pretended = PLACES[scenario.place]
        self.each = self.each or self.ranks
        self.process_count = self.ranks // self.each
        self.faults = [words.split() for words in scenario.do.split(" + ")]
        self.mortal = any(w[0] in MORTAL or (w[0] == "tell" and w[1] in MORTAL_WORDS) for w in self.faults)
        self.victim_numbers = self.draw_victims(scenario.who)
        self.victims = self.victim_numbers
        self.guilty = {r for v in self.victim_numbers for r in range(v * self.each, (v + 1) * self.each)}
        self.done_at = None

    def host_of(self, process):
        if self.pretended:
            return process * self.each // self.pretended
        return process * self.host_count // self.process_count if self.host_count else 0

    def draw_victims(self, who):
        n = self.process_count
        last_host = [p for p in range(n) if self.host_of(p) == self.host_of(n - 1)]
        return {"one": lambda: [self.random.randrange(n)],
                "two": lambda: sorted(self.random.sample(range(n), 2)),
                "first": lambda: [0],
                "last": lambda: [n - 1],
                "host": lambda: last_host,
                "most": lambda: sorted(self.random.sample(range(n), n - 1)),
                "all": lambda: list(range(n)),
                "none": lambda: []}[who]()

    # --- The job ---

    def deaths_of(self, process):
        """How many ranks are gone for this process when all is over."""
        if self.scenario.then.startswith("parted") and process in self.victim_numbers:
            return self.ranks - len(self.guilty)
        return len(self.guilty)

    def command(self, process):
        late = ["--exclude-late"] if self.scenario.then.startswith("late") else []
        return [str(self.build / "tests/campaign_workload"), self.scenario.run, "--memory", self.scenario.memory,
                "--threads", str(self.each), "--seed", str(self.seed), "--deaths", str(self.deaths_of(process)), *late]

    def prefix(self, process):
        to_host = self.hosts.prefix(self.host_of(process)) if self.hosts else []
        return self.outer[process] + to_host + self.wraps[process]

    def environment(self, process):
        variables = dict(v.split("=", 1) for v in self.scenario.settings.split())
        if self.pretended:
            variables["TUTTI_HOST_ID"] = f"host{self.host_of(process)}"
        return variables | self.more_variables[process]

    def start(self, folder, mark):
        return Job(self.command, self.process_count, self.each, folder, mark, self.prefix, self.environment)

    def start_another(self):
        other = self.start(self.folder / "other", self.mark + "other-")
        self.others.append(other)
        return other

    def pids_of(self, process):
        pids = [process.pid]
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
            pids += [int(pid) for pid in children.read().split()]
        return pids

    @staticmethod
    def drive_to_end(job):
        job.all_say("ready", 20)
        job.tell_all("stop")
        job.wait(job.ended, 20)

    # --- Its phases ---

    def wait_for_the_time(self):
        when, job = self.scenario.when, self.job
        victims = [r for v in self.victim_numbers for r in range(v * self.each, (v + 1) * self.each)]
        if when == "start":
            return
        if when == "meeting":
            job.wait(lambda: False, self.random.uniform(0, 0.06))
        elif when == "first":
            job.wait(lambda: all(job.of(r, "met", "error", "ended") for r in victims[:1]), 20)
            time.sleep(self.random.uniform(0, 0.003))
        else:
            job.all_say("ready", 25)
            job.wait(lambda: False, self.random.uniform(0, 0.15))
            if when == "leaving":
                job.tell_all("stop")
                job.wait(lambda: any(e["event"] == "leaving" for e in job.events), 20)
                time.sleep(self.random.uniform(0, 0.002))

    def drive(self):
        scenario, job = self.scenario, self.job
        deadline = time.monotonic() + float(scenario.deadline)
        self.wait_for_the_time()
        self.victims = [job.processes[v] for v in self.victim_numbers]
        for name, *words in self.faults:
            if name in faults.DURING:
                self.done_at = time.monotonic()
                faults.DURING[name](self, *words)
        if not scenario.then.startswith(("lost", "parted")):
            if scenario.when == "start":
                job.all_say("ready", float(scenario.deadline))
            job.tell_all("stop")
        job.wait(lambda: job.ended(), max(0, deadline - time.monotonic()))

    def run(self):
        self.wraps = {p: [] for p in range(self.process_count)}
        self.outer = {p: [] for p in range(self.process_count)}
        self.more_variables = {p: {} for p in range(self.process_count)}
        self.job = None
        left = []
        try:
            self.hosts = take_hosts(self.host_count, self.wires, self.seed)
            for name, *words in self.faults:
                if name in faults.BEFORE:
                    faults.BEFORE[name](self, *words)
                elif name not in faults.DURING:
                    raise SystemExit(f"{self.scenario.name}: there is no fault `{name}`")
            self.job = self.start(self.folder, self.mark)
            self.drive()
        except faults.Skipped as reason:
            return {"scenario": self.scenario.name, "seed": self.seed, "skipped": str(reason)}
        finally:
            self.stacks = self.look_at_hung() if self.job else {}
            for job in [self.job, *self.others]:
                if job:
                    left += [f"process {pid}" for pid in job.end()]
            left += self.clean_up()
        return judge.judge(self, left)

    def look_at_hung(self):
        """Where processes stand that should have ended, if there is a debugger."""
        stacks = {}
        for process in self.job.processes:
            if process.status is None and shutil.which("gdb"):
                done = subprocess.run(["gdb", "-p", str(self.pids_of(process)[-1]), "-batch", "-ex",
                                       "thread apply all bt 25"], capture_output=True, text=True, timeout=60)
                stacks[process.number] = done.stdout[-20000:]
        return stacks

    def clean_up(self):
        """Returns what should not have been left."""
        left = []
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.mounted)], stderr=subprocess.DEVNULL)
        elif self.job and any(e["event"] == "ready" for e in self.job.events):
            left += [f"file {path.name}" for path in self.folder.rglob("*")
                     if path.is_file() and path.name != "recorded"]
        shutil.rmtree(self.folder, ignore_errors=True)
        for group in self.groups:
            for _ in range(50):
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.02)
            else:
                left.append(f"cgroup {group.name}")
        return left
