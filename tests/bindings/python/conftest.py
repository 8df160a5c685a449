"""Ranks as threads, and as processes."""

import json
import subprocess
import sys
import textwrap
import threading

import pytest

import tutti


def run_threads(size, body, **options):
    """body(comm) on `size` thread ranks; their results, by rank. Raises what the first one raised."""
    comms = tutti.Communicator.create_local(size, **options)
    results, errors = [None] * size, [None] * size

    def rank(r):
        try:
            results[r] = body(comms[r])
        except BaseException as error:
            errors[r] = error
            comms[r].abort("a test body raised")
        finally:
            comms[r].destroy()

    threads = [threading.Thread(target=rank, args=(r,), daemon=True) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs"
    raised = [e for e in errors if e is not None]
    if raised:
        # The one that all others were aborted by.
        raise next((e for e in raised if not isinstance(e, tutti.Aborted)), raised[0])
    return results


class Job:
    """`source` on process ranks, each of which says() what it has to say as a line of JSON."""

    prelude = """
        import json, os, sys, time
        import numpy as np
        import tutti
        def says(*what):
            os.write(1, ("SAYS " + json.dumps([comm.rank, os.getpid(), *what]) + "\\n").encode())
    """

    def __init__(self, size, source, launcher=None):
        program = textwrap.dedent(self.prelude) + textwrap.dedent(source)
        launcher = launcher or [sys.executable, "-m", "tutti", "run", "-n", str(size)]
        self.process = subprocess.Popen(
            [*launcher, sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = []

    def next(self, count):
        """The next `count` things said, in the order of ranks."""
        said = []
        while len(said) < count:
            line = self.process.stdout.readline()
            assert line, "".join(self.lines)
            self.lines.append(line)
            if "SAYS " in line:
                said.append(json.loads(line[line.index("SAYS ") + 5 :]))
        return sorted(said)

    def finish(self, timeout=30):
        rest, _ = self.process.communicate(timeout=timeout)
        self.lines.append(rest)
        return self.process.returncode, "".join(self.lines)


@pytest.fixture
def job():
    jobs = []

    def start(*args, **kwargs):
        jobs.append(Job(*args, **kwargs))
        return jobs[-1]

    yield start
    for j in jobs:
        if j.process.poll() is None:
            j.process.kill()
            j.process.wait()
