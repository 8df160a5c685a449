"""The exceptions: one class for each kind of failure, all of them tutti.Error."""

from __future__ import annotations

import re


class Error(RuntimeError):
    """What happened, to whom, where, and what to do about it, in a sentence.

    rank: the rank that caused it, or None; operation: the collective it happened in, and step: the
    step of its plan, where the sentence names them.
    """

    code = ""

    def __init__(self, message: str, rank: int | None = None):
        super().__init__(message)
        self.rank = rank
        found = re.search(r"\bin step (\d+) .*?\bof (\w+)", message)
        self.step = int(found[1]) if found else None
        self.operation = found[2] if found else None


class InvalidArgument(Error, ValueError):
    """This call's arguments are wrong; nothing was started."""

    code = "invalid_argument"


class InvalidUsage(Error):
    """Right arguments at the wrong time, as on a destroyed communicator."""

    code = "invalid_usage"


class Mismatch(Error):
    """Ranks called different operations, counts, types, roots or orders."""

    code = "mismatch"


class PeerLost(Error, ConnectionError):
    """Another rank died or left. The others can go on without it: Communicator.shrink()."""

    code = "peer_lost"


class TimedOut(Error, TimeoutError):
    """The time that the user has set has passed."""

    code = "timed_out"


class Aborted(Error):
    """abort() was called, or Ctrl-C pressed, here or on another rank."""

    code = "aborted"


class UnprovenPlan(Error, ValueError):
    """A plan that the verifier does not accept."""

    code = "unproven_plan"


class SystemFailure(Error, OSError):
    """The operating system refused something."""

    code = "system"


class InternalError(Error):
    """A bug in Tutti."""

    code = "internal"


_classes = {
    c.code: c
    for c in (
        InvalidArgument,
        InvalidUsage,
        Mismatch,
        PeerLost,
        TimedOut,
        Aborted,
        UnprovenPlan,
        SystemFailure,
        InternalError,
    )
}


def _make(code: str, message: str, rank: int) -> Error:
    return _classes.get(code, Error)(message, rank if rank >= 0 else None)
