#!/usr/bin/env python3
"""Measures the tables of docs/performance.md, and puts them there.

    bench/performance.py build [--rounds 7] [--slice 12] [--page docs/performance.md]

BUILD has to know the newest MPIs (`make compare` installs them). Each table is one or more runs of `tutti compare`,
whose programs take turns; those between hosts need root and iproute2. The machine is to be idle for some minutes. The
tables replace what is between the two marks in the page; without --page they are printed.
"""
import argparse
import datetime
import json
import pathlib
import sys
import tempfile

from programs import run

PEERS = {"intelmpi": "Intel MPI", "openmpi5": "Open MPI 5", "mpich5": "MPICH 5"}
MEMORY = {"window": "window memory", "heap": "`--windows`", "malloc": "malloc memory"}
OTHERS = ["all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv"]
MARKS = ("<!-- measured: begin -->\n", "<!-- measured: end -->\n")


def size_of(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


def figure(us):
    return "-" if us is None else f"{us:.3g}" if us < 1000 else f"{us:.0f}"


def ratio(row):
    low, high = row["quartiles"]["ratio"]
    return "unsteady" if row["ratio"] is None else f"{row['ratio']:.2f} ({low:.2f}-{high:.2f})"


def limit(row):
    return "unsteady" if row["of_limit"] is None else f"{row['of_limit']:.0%}"


def table(header, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *rows]) + "\n"


class Measured:
    def __init__(self, build, rounds, slice_ms):
        self.command = [build / "bin/tutti", "compare", "--rounds", rounds, "--slice", slice_ms]
        self.machine = None

    def rows(self, collectives, *options):
        """What `tutti compare` measures, by collective and bytes."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            run([*self.command, *collectives, *options, "--json", file], seconds=3600)
            found = json.loads(file.read_text())
        for note in found["notes"]:
            print(f"performance.py: {note}", file=sys.stderr)
        self.machine = f"{found['cores']} cores of {found['cpu']}"
        rows = {}
        for row in found["rows"]:
            rows.setdefault(row["collective"], {})[row["bytes"]] = row
        return rows


def times(by_memory):
    """All libraries' times of one collective: a column for each size."""
    first = next(iter(by_memory.values()))
    rows = [[f"Tutti, {memory}", *(figure(r["tutti_us"]) for r in sizes.values())]
            for memory, sizes in by_memory.items()]
    rows += [[name, *(figure(r["peers"].get(peer)) for r in first.values())] for peer, name in PEERS.items()]
    for memory, sizes in by_memory.items():
        rows.append([f"best peer / Tutti, {memory}", *map(ratio, sizes.values())])
    for memory, sizes in by_memory.items():
        if any(r["of_limit"] for r in sizes.values()):
            rows.append([f"of the limit, {memory}", *map(limit, sizes.values())])
    return table(["us", *map(size_of, first)], rows)


def ratios(by_memory):
    """The best peer's time / Tutti's, of several collectives: a column for each size."""
    rows = []
    for memory, found in by_memory.items():
        rows += [[f"{collective}, {memory}", *map(ratio, sizes.values())] for collective, sizes in found.items()]
    sizes = next(iter(next(iter(by_memory.values())).values()))
    return table(["", *map(size_of, sizes)], sorted(rows))


def tables(measured):
    def by_memory(collectives, *options, kinds=tuple(MEMORY)):
        return {MEMORY[kind]: measured.rows(collectives, *options, "--memory", kind) for kind in kinds}

    few, usual = ["--peers", "intelmpi,openmpi5"], ["--peers", "intelmpi,openmpi5,mpich5"]
    yield "All_reduce, two ranks with a core each (medians in microseconds, and ratios with quartiles):"
    found = by_memory(["all_reduce"], "-n", 2, "-b", 8, "-e", "32M", "-f", 4, *usual)
    yield times({memory: rows["all_reduce"] for memory, rows in found.items()})
    yield "The other collectives, two ranks: the best peer's time / Tutti's."
    yield ratios(by_memory(OTHERS, "-n", 2, "-b", 32, "-e", "32M", "-f", 32, *usual))
    yield "Four ranks on two cores, without MPICH, whose ranks never yield a core: the best peer's time / Tutti's."
    yield ratios(by_memory(["all_reduce", *OTHERS], "-n", 4, "-b", 64, "-e", "16M", "-f", 64, *few,
                           kinds=("window", "malloc")))
    yield "All_reduce over TCP, two hosts (namespaces of this machine) with a rank each:"
    yield times({"TCP": measured.rows(["all_reduce"], "-n", 2, "--hosts", "--bind", "-b", 8, "-e", "16M", "-f", 8,
                                      "--memory", "malloc", *usual)["all_reduce"]})


def around_tables(page):
    """What the page has before its tables and after them."""
    text = page.read_text()
    if any(text.count(mark) != 1 for mark in MARKS):
        raise SystemExit(f"{page}: not one place between {MARKS[0].strip()} and {MARKS[1].strip()}")
    before, rest = text.split(MARKS[0])
    return before, rest.split(MARKS[1])[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, metavar="BUILD")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each program on each size")
    parser.add_argument("--slice", type=int, default=12, help="milliseconds of a turn")
    parser.add_argument("--page", type=pathlib.Path, help="the page whose tables are replaced")
    a = parser.parse_args()
    before, after = around_tables(a.page) if a.page else ("", "")  # A wrong page is found before minutes of measuring.
    measured = Measured(a.build.resolve(), a.rounds, a.slice)
    parts = list(tables(measured))
    version = run([a.build / "bin/tutti", "--version"]).split()[-1]
    parts.insert(0, f"Measured by `bench/performance.py` on {measured.machine}, {datetime.date.today()}, Tutti {version}.")
    text = "\n".join(part if part.endswith("\n") else part + "\n" for part in parts)
    if a.page:
        a.page.write_text(before + text.join(MARKS) + after)
    else:
        print(text)


if __name__ == "__main__":
    main()
