#!/usr/bin/env python3
"""What the compiled kernels are, read from their instructions: registers, spills, sizes, loads under way at
once, fences. A kernel may be right and yet have lost what makes it fast; no other test sees that.

    kernels.py CUOBJDUMP LIBRARY_OR_CUBIN [--library-limit MB] [--print]

Of every architecture that the binary has code for; sizes, fences and calls of sm_90's alone. Where there is no
cuobjdump it says so and exits with 77.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

MOST_REGISTERS = 128     # 512 threads leave no more
MOST_SPILLS = 0          # accesses of local memory, anywhere
# Of a type's kernels (launch.h), and the most bytes of instructions in each.
# (That of words has loops for one, two and more sources; a call's time is what it executes, once.)
MOST_BYTES = {"run_plan": 62_000, "run_windows": 46_000, "run_words": 50_000}
LOADS_AT_ONCE = 8        # of 128 bits, before the first result is used: copies, and sums
LINES_AT_ONCE = 2        # of an LL128 message, of one-byte types; of others twice as many
MOST_IN_BURST = 5        # instructions from one of these loads to the next
MOST_FENCES = 8          # MEMBAR, in all of a kernel: release stores of headers, credits and meetings
MOST_CALLS = 12          # of what ends a wait, and of the steps of divisions
# As core/types.h numbers them.
TYPES = ("int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16 float8_e4m3 float8_e5m2").split()
ONE_BYTE, EIGHT_BYTES = (0, 1, 10, 11), (4, 5)  # integers of the latter have a 64-bit division, for averages

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+((?:@!?U?P\d+\s+)?[A-Z][^;]*);")
REGISTER = re.compile(r"\bR(\d+)\b")


def kernels(text):
    """(name, instructions) of each function in cuobjdump's listing."""
    name, lines = None, []
    for line in text.splitlines():
        function = re.match(r"\s*Function : (\S+)", line)
        if function:
            if name:
                yield name, lines
            name, lines = function[1], []
            continue
        instruction = INSTRUCTION.search(line)
        if instruction and name:
            lines.append((int(instruction[1], 16), instruction[2]))
    if name:
        yield name, lines


def is_wide(line):
    return ".128" in line and ("LDG.E" in line or "LD.E" in line)


def is_flagged(line):
    """A relaxed load of a message of LL or LL128."""
    return ".128" in line and "STRONG.SYS" in line and ("LDG.E" in line or "LD.E" in line)


def bulk_loops(kernel):
    """The instructions of each innermost loop that has eight wide loads: from where a branch goes back to."""
    loops = []
    for at, line in kernel:
        target = re.search(r"\bBRA\b.*?0x([0-9a-f]+)", line)
        if not target or int(target[1], 16) >= at:
            continue
        first = int(target[1], 16)
        body = [text for a, text in kernel if first <= a <= at]
        if sum(map(is_wide, body)) >= LOADS_AT_ONCE:
            loops.append((first, at, body))
    return [body for first, last, body in loops
            if not any(first <= f and l <= last and (f, l) != (first, last) for f, l, _ in loops)]


def longest_burst(lines, is_load):
    """The most loads that follow each other, with no more than a few instructions between two."""
    places = [i for i, line in enumerate(lines) if is_load(line)]
    best = run = min(1, len(places))
    for before, at in zip(places, places[1:]):
        run = run + 1 if at - before <= MOST_IN_BURST else 1
        best = max(best, run)
    return best


def loads_at_once(lines):
    """The most 128-bit loads from memory that are issued before one's result is read."""
    best, pending = 0, []
    for line in lines:
        body = re.sub(r"^@!?U?P\d+\s+", "", line)
        operation = body.split()[0]
        registers = [int(r) for r in REGISTER.findall(body)]
        load = is_wide(operation)
        read = registers[1:] if registers and not operation.startswith("ST") else registers
        if any(first <= r < first + 4 for r in read for first in pending):
            pending = []
        if load and registers:
            pending.append(registers[0])
            best = max(best, len(pending))
    return best


def count(lines, *starts):
    return sum(re.sub(r"^@!?U?P\d+\s+", "", line).startswith(starts) for line in lines)


def facts_of(kernel):
    lines = [text for _, text in kernel]
    return {"bytes": 16 * len(lines), "loops": len(bulk_loops(kernel)), "spills": count(lines, "LDL", "STL"),
            "fences": count(lines, "MEMBAR"), "at once": loads_at_once(lines),
            "lines at once": longest_burst(lines, is_flagged), "calls": count(lines, "CALL"),
            # A 64-bit division has its reciprocal from here.
            "long divisions": count(lines, "I2F.U64")}


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def architectures(cuobjdump, binary):
    """Those that there is code for, sm_90 first."""
    found = set(re.findall(r"\.(sm_\d+a?)\.cubin", run(cuobjdump, "-lelf", str(binary))))
    return sorted(found, key=lambda name: (name != "sm_90", int(re.sub(r"\D", "", name))))


def check(cuobjdump, binary, architecture):
    """What is wrong, and how many kernels there are."""
    select = ["-arch", architecture] if architecture else []
    usage = run(cuobjdump, *select, "-res-usage", str(binary))
    registers = {m[1]: int(m[2]) for m in re.finditer(r"Function (\S+):\s+REG:(\d+)", usage)}
    wrong, seen = [], 0
    for name, lines in kernels(run(cuobjdump, *select, "-sass", str(binary))):
        kind = next((k for k in MOST_BYTES if k in name), None)
        if kind is None:
            continue
        seen += 1
        facts = {"registers": registers.get(name, 0), **facts_of(lines)}
        data_type = int(re.search(r"DataTypeE(\d+)E", name)[1])
        title = f"{architecture or 'cubin'} {TYPES[data_type]}, {kind}:"
        print(title, ", ".join(f"{k} {v}" for k, v in facts.items()))
        good = {"registers": 0 < facts["registers"] <= MOST_REGISTERS, "spills": facts["spills"] <= MOST_SPILLS}
        if kind != "run_words":
            good |= {"at once": facts["at once"] >= LOADS_AT_ONCE, "loops": facts["loops"] >= 1}
        if kind == "run_plan":
            good["lines at once"] = facts["lines at once"] >= LINES_AT_ONCE * (1 if data_type in ONE_BYTE else 2)
        if architecture in (None, "sm_90"):
            good |= {"bytes": facts["bytes"] <= MOST_BYTES[kind], "fences": facts["fences"] <= MOST_FENCES,
                     "calls": facts["calls"] <= MOST_CALLS,
                     "long divisions": facts["long divisions"] <= (1 if data_type in EIGHT_BYTES else 0)}
        wrong += [f"{title} {fact} {facts[fact]}" for fact, is_good in good.items() if not is_good]
    return wrong, seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("cuobjdump")
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--library-limit", type=float, help="most MB that the file may have")
    parser.add_argument("--print", action="store_true", help="the figures, without an opinion")
    arguments = parser.parse_args()
    if not shutil.which(arguments.cuobjdump):
        print(f"skipped: there is no {arguments.cuobjdump}; CUDA's toolkit has one, and -DTUTTI_CUOBJDUMP says where")
        return 77
    is_cubin = arguments.binary.suffix == ".cubin"
    wrong, seen = [], 0
    for architecture in [None] if is_cubin else architectures(arguments.cuobjdump, arguments.binary):
        of_this, kernels_here = check(arguments.cuobjdump, arguments.binary, architecture)
        wrong += of_this
        seen += kernels_here
    size = arguments.binary.stat().st_size / 1e6
    if arguments.library_limit and size > arguments.library_limit:
        wrong.append(f"{arguments.binary.name}: {size:.1f} MB")
    if seen == 0:
        wrong.append(f"no kernel in {arguments.binary}")
    if arguments.print:
        return 0
    print("\n".join(["wrong:", *wrong] if wrong else ["as they should be"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
