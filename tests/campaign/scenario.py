"""Scenario files: what runs, what is done to it, when, and what must come of it.

A file has sections, as an INI file. A section is a family: each of its keys has one value, or several between |, and
the family has a scenario for each combination of them. `without` takes combinations out again: "place=threads do=kill".
"5..40" and "0..100/10" in a value stand for all these numbers.
The keys, with what they say when they are missing, are in DEFAULTS; README.md explains their values.
"""
import configparser
import dataclasses
import fnmatch
import itertools
import pathlib
import re

DEFAULTS = {
    "run": "mixed",  # the work (workload.h), or a program of PROGRAMS in job.py
    "memory": "any",  # the work's
    "ranks": "3",
    "place": "processes",
    "settings": "",  # NAME=VALUE of all ranks
    "who": "one",  # the processes to which something is done
    "when": "calls",
    "do": "nothing",
    "then": "well",
    "within": "1",  # seconds in which every survivor has to notice
    "deadline": "40",  # seconds for all, or it hangs
}


@dataclasses.dataclass(frozen=True)
class Scenario:
    family: str
    name: str
    values: tuple

    def __getattr__(self, key):
        try:
            return dict(self.values)[key]
        except KeyError:
            raise AttributeError(key) from None


def ranges(value):
    """`limit nofile 5..40` as a value for each number; 0..100/10: every tenth."""
    found = re.search(r"(\d+)\.\.(\d+)(?:/(\d+))?", value)
    if not found:
        return [value]
    numbers = range(int(found[1]), int(found[2]) + 1, int(found[3] or 1))
    return [value[:found.start()] + str(n) + value[found.end():] for n in numbers]


def expand(family, section):
    unknown = set(section) - set(DEFAULTS) - {"without"}
    if unknown:
        raise SystemExit(f"[{family}] has keys that no scenario has: {', '.join(sorted(unknown))}")
    choices = {key: [one for v in section.get(key, value).split("|") for one in ranges(v.strip())]
               for key, value in DEFAULTS.items()}
    several = [key for key in section if len(choices.get(key, ())) > 1]
    without = [dict(pair.split("=", 1) for pair in line.split(" ") if pair)
               for line in section.get("without", "").splitlines()]
    for combination in itertools.product(*choices.values()):
        values = dict(zip(choices, combination))
        if any(out and all(fnmatch.fnmatch(values[k].replace(" ", "_"), v) for k, v in out.items()) for out in without):
            continue
        name = "/".join([family] + [values[key].replace(" ", "_") or "none" for key in several])
        yield Scenario(family, name, tuple(values.items()))


def load(folder, only=("*",)):
    """All scenarios of the folder's files that match one of the patterns, in their order."""
    found = []
    for file in sorted(pathlib.Path(folder).glob("*.ini")):
        parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
        parser.optionxform = str
        parser.read(file)
        for family in parser.sections():
            found += expand(family, parser[family])
    names = [s.name for s in found]
    if len(set(names)) < len(names):
        raise SystemExit(f"two scenarios have one name: {max(names, key=names.count)}")
    return [s for s in found if any(fnmatch.fnmatch(s.name, pattern) for pattern in only)]
