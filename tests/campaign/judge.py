"""What must have come of a run. Whatever is expected: nobody hangs, no byte is wrong, nobody but a victim ends by a
signal, nobody but the guilty is blamed, nothing is left behind."""
import statistics

GIVEN_UP, WRONG, EXCLUDED = 3, 4, 6


def judge(run, left):
    job, scenario = run.job, run.scenario
    problems = []

    def problem(kind, text):
        problems.append({"kind": kind, "text": text})

    victims = set(run.victim_numbers)
    then, *words = scenario.then.split()
    parted = then == "parted"
    named = unnamed = 0
    # When ranks have given up, and left: they are gone for the others, too.
    gave_up = {e["rank"]: e["at"] for e in job.events if e["event"] == "error" and e["which"] == "last"}
    noticed = []

    for process in job.processes:
        p, victim = process.number, process.number in victims
        may_die = victim and run.mortal
        # Who may be to blame, in the eyes of this process.
        guilty = run.guilty
        if parted and victim:
            guilty = set(range(run.ranks)) - run.guilty
        if then == "refused" or "anyone" in words:
            guilty = set(range(run.ranks))
        if scenario.when == "leaving":  # who has left is gone, too
            guilty = guilty | {e["rank"] for e in job.events if e["event"] == "leaving"}
        if process.status is None:
            problem("hang", f"process {p} has not ended")
        elif process.status < 0 and not may_die:
            problem("signal", f"process {p} was ended by signal {-process.status}")
        elif process.status not in (0, GIVEN_UP, EXCLUDED) and not may_die:
            problem("wrong" if process.status == WRONG else "status", f"process {p} ended with {process.status}")
        for rank in process.ranks:
            errors = job.of(rank, "error")
            for event in job.of(rank, "wrong"):
                problem("wrong", f"rank {rank}: {event['text']}")
            for e in errors:
                # A rank that gives up ends its windows and communicators, and tells those that wait there just that.
                ended = e["which"] == "first" and e["code"] in ("invalid_usage", "aborted")
                # Who comes too late to a meeting cannot know why it is over.
                too_late = victim and scenario.when == "meeting" and e["code"] == "timed_out"
                gone = e["code"] == "peer_lost" and gave_up.get(e["of"], e["at"]) < e["at"]
                if e["of"] >= 0 and e["of"] not in guilty and not ended and not too_late and not gone:
                    problem("blamed", f"rank {rank} blames rank {e['of']}: {e['code']}: {e['text']}")
            if may_die or not errors:
                continue
            # The name that the communicator gives, or the last word of a rank that has given up.
            blame = [e for e in errors if e["which"] in ("again", "last")] or errors
            if run.guilty and (blame[0]["of"] in guilty or mentions(blame[0]["text"], guilty)):
                named += 1
            elif run.guilty and not victim:
                unnamed += 1
                if scenario.when == "calls" and then in ("lost", "late", "parted"):
                    problem("unnamed", f"rank {rank}: {blame[0]['code']}: {blame[0]['text']}")
            if run.done_at is not None and not (victim and not parted):
                noticed.append(errors[0]["at"] - run.done_at)
        for event in job.of(process.ranks[0], "kept"):
            if event["what"]:
                problem("left", f"process {p} kept {', '.join(event['what'])}")

    for what in left:
        problem("left", what)
    for other in run.others:
        for process in other.processes:
            if process.status != 0:
                problem("status", f"the other job's process {process.number} ended with {process.status}: "
                                  f"{' '.join(other.texts[process.number])[-400:]}")
    EXPECTED[then](run, problem, victims, noticed, *words)
    result = {"scenario": scenario.name, "seed": run.seed, "problems": problems, "named": named, "unnamed": unnamed,
              "seconds": round(max([e["at"] for e in job.events] or [job.begun]) - job.begun, 3)}
    if noticed:
        result["noticed"] = round(max(noticed), 4)
    result |= run.notes
    if problems:
        result["said"] = {p: lines[-30:] for p, lines in job.texts.items()}
        result["statuses"] = [p.status for p in job.processes]
        if run.stacks:
            result["stacks"] = run.stacks
    return result


def mentions(text, ranks):
    return any(f"rank {r}" in text for r in ranks)


# --- What is expected -----------------------------------------------------------------------------

def well(run, problem, victims, noticed):
    """Nothing has come of it."""
    for process in run.job.processes:
        if process.status not in (0, None):
            problem("status", f"process {process.number} ended with {process.status}")
        for rank in process.ranks:
            for e in run.job.of(rank, "error", "exception"):
                problem("unexpected", f"rank {rank}: {e.get('code')}: {e['text']}")


def truth(run, problem, victims, noticed, whom="victims"):
    """All is well, or errors say why not. What all outcomes must be is enough."""


def refused(run, problem, victims, noticed, word):
    """Nobody begins, and an error says the word."""
    errors = [e for e in run.job.events if e["event"] == "error"]
    word = word.replace("_", " ")
    if any(e["event"] == "ready" for e in run.job.events):
        problem("unexpected", "ranks have begun to make calls")
    if not any(word in e["text"] for e in errors):
        problem("unexpected", f"no error has the word {word}: {errors}")


def lost(run, problem, victims, noticed):
    """All others have noticed in time, and go on without the victims; or none of them has met."""
    survivors = [p for p in run.job.processes if p.number not in victims]
    met = run.scenario.when not in ("meeting", "first", "start")
    for process in survivors:
        for rank in process.ranks:
            errors = run.job.of(rank, "error")
            if not errors:
                problem("unexpected", f"rank {rank} has noticed nothing")
            if met and not any(e["ranks"] == run.ranks - len(run.guilty) for e in run.job.of(rank, "survived")):
                problem("unexpected", f"rank {rank} has not gone on: {errors[-1:]}")
        if met and process.status != 0:
            problem("status", f"process {process.number} ended with {process.status}")
    if met and noticed and max(noticed) > float(run.scenario.within):
        problem("late", f"noticed after {max(noticed):.3f} s")


def parted(run, problem, victims, noticed, least, most):
    """The hosts have lost each other, in time, and each goes on alone."""
    for process in run.job.processes:
        if process.status != 0:
            problem("status", f"process {process.number} ended with {process.status}")
        for rank in process.ranks:
            if not run.job.of(rank, "survived"):
                problem("unexpected", f"rank {rank} has not gone on")
    if noticed and not float(least) <= min(noticed) <= max(noticed) <= float(most):
        problem("late", f"noticed after {min(noticed):.3f} to {max(noticed):.3f} s")


def late(run, problem, victims, noticed, seconds):
    """The others' calls have timed out, as configured +- 10 %, by the name of the one that is late."""
    for process in run.job.processes:
        for rank in process.ranks:
            if process.number in victims:
                continue
            errors = run.job.of(rank, "error")
            if not errors or errors[0]["code"] != "timed_out":
                problem("unexpected", f"rank {rank} has noticed: {errors[:1]}")
            if process.status != 0:
                problem("status", f"process {process.number} ended with {process.status}")
    if noticed and not 0.9 * float(seconds) <= statistics.median(noticed) <= 1.1 * float(seconds):
        problem("late", f"noticed after {min(noticed):.3f} to {max(noticed):.3f} s")


EXPECTED = {"well": well, "refused": refused, "truth": truth, "lost": lost, "parted": parted, "late": late}
