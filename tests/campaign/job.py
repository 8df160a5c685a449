"""The real processes of a job, what they say, and what is left of them."""
import contextlib
import json
import os
import pathlib
import selectors
import signal
import subprocess
import time


class Process:
    """A process with one rank or several."""

    def __init__(self, number, ranks, popen):
        self.number, self.ranks, self.popen = number, ranks, popen
        self.pid = popen.pid
        self.status = None
        self.half = b""

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Job:
    """Starts `command` for each process. `prefix(p)` comes before it, `environment(p)` is added to this one's."""

    def __init__(self, command, processes, each, folder, mark, prefix, environment):
        self.mark, self.folder = mark, pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.size = processes * each
        self.events, self.texts = [], {}
        self.processes = []
        self.selector = selectors.DefaultSelector()
        self.begun = time.monotonic()
        for p in range(processes):
            variables = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
            variables |= {"TUTTI_RANK": str(p), "TUTTI_SIZE": str(processes), "TUTTI_ID_FILE": str(self.folder / "id"),
                          "TUTTI_TEST_MARK": mark, "TMPDIR": str(self.folder)} | environment(p)
            popen = subprocess.Popen(prefix(p) + command(p), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, env=variables)
            os.set_blocking(popen.stdout.fileno(), False)
            process = Process(p, range(p * each, (p + 1) * each), popen)
            self.processes.append(process)
            self.texts[p] = []
            self.selector.register(popen.stdout, selectors.EVENT_READ, process)

    # --- What they say ---

    def read(self, seconds):
        """Takes in what comes, for so long, or less when something has come."""
        for key, _ in self.selector.select(max(0, seconds)):
            self.take(key.data)
        for process in self.processes:
            if process.status is None and process.popen.poll() is not None:
                process.status = process.popen.returncode
                self.events.append({"rank": process.ranks[0], "at": time.monotonic(), "event": "ended",
                                    "status": process.status})

    def take(self, process):
        try:
            data = process.popen.stdout.read()
        except BlockingIOError:
            return
        if data is None:
            return
        if not data:
            with contextlib.suppress(KeyError):
                self.selector.unregister(process.popen.stdout)
        *lines, process.half = (process.half + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            self.texts[process.number].append(text)
            if text.startswith("{"):
                with contextlib.suppress(ValueError):
                    self.events.append(json.loads(text))

    def of(self, rank, *events):
        return [e for e in self.events if e.get("rank") == rank and e["event"] in events]

    def wait(self, condition, seconds):
        """Whether the condition has come true by then."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.read(min(left, 0.05))
        return True

    def all_say(self, event, seconds, but=()):
        """Whether all ranks have said it, or have ended or failed."""
        def said(rank):
            return self.of(rank, event, "error", "wrong", "exception", "ended")
        return self.wait(lambda: all(said(r) for r in range(self.size) if r not in but), seconds)

    # --- What they are told ---

    def tell(self, process, line):
        with contextlib.suppress(OSError):
            process.popen.stdin.write(line.encode() + b"\n")
            process.popen.stdin.flush()

    def tell_all(self, line):
        for process in self.processes:
            self.tell(process, line)

    def ended(self):
        return all(p.status is not None for p in self.processes)

    # --- What is left ---

    def marked(self):
        """Processes that have this job's mark in their environment."""
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    with open(f"/proc/{entry.name}/environ", "rb") as file:
                        if f"TUTTI_TEST_MARK={self.mark}\0".encode() in file.read():
                            found.append(int(entry.name))
        return found

    def end(self):
        """Kills what is left; returns what should not have been left: processes, and files of the job."""
        for process in self.processes:
            if process.status is None:
                process.kill()
                process.kill(signal.SIGCONT)
                process.popen.wait()
            with contextlib.suppress(OSError):
                process.popen.stdin.close()
            self.take(process)
            process.popen.stdout.close()
        self.selector.close()
        left, end = self.marked(), time.monotonic() + 2
        while left and time.monotonic() < end:
            time.sleep(0.02)
            left = self.marked()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left
