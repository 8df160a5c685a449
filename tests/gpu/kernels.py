#!/usr/bin/env python3
"""What the compiled kernels are, read from their instructions: registers, spills, sizes, loads under way at
once, fences. A kernel may be right and yet have lost what makes it fast; no other test sees that.

    kernels.py CUOBJDUMP LIBRARY_OR_CUBIN [--library-limit MB] [--print]
"""
import argparse
import pathlib
import re
import subprocess
import sys

MOST_REGISTERS = 128     # 512 threads leave no more
MOST_SPILLS = 0          # accesses of local memory in the loops that move packs; elsewhere they cost a step little
MOST_BYTES = 120_000     # of a type's instructions; 60,000 are wanted (docs/gpu-status.md)
LOADS_AT_ONCE = 8        # of 128 bits, before the first result is used: copies, and sums
MOST_FENCES = 8          # MEMBAR, in all of a kernel: release stores of headers, credits and meetings

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
    loops = bulk_loops(kernel)
    return {"bytes": 16 * len(lines), "loops": len(loops),
            "spills": sum(count(body, "LDL", "STL") for body in loops), "spills elsewhere": count(lines, "LDL", "STL"),
            "fences": count(lines, "MEMBAR"), "at once": loads_at_once(lines), "calls": count(lines, "CALL")}


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("cuobjdump")
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--library-limit", type=float, help="most MB that the file may have")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--print", action="store_true", help="the figures, without an opinion")
    arguments = parser.parse_args()
    select = [] if arguments.binary.suffix == ".cubin" else ["-arch", arguments.architecture]
    usage = run(arguments.cuobjdump, *select, "-res-usage", str(arguments.binary))
    registers = {m[1]: int(m[2]) for m in re.finditer(r"Function (\S+):\s+REG:(\d+)", usage)}
    wrong, seen = [], 0
    for name, lines in kernels(run(arguments.cuobjdump, *select, "-sass", str(arguments.binary))):
        if "run_plan" not in name:
            continue
        seen += 1
        facts = {"registers": registers.get(name, 0), **facts_of(lines)}
        print(name, ", ".join(f"{k} {v}" for k, v in facts.items()))
        for fact, good in (("registers", 0 < facts["registers"] <= MOST_REGISTERS),
                           ("spills", facts["spills"] <= MOST_SPILLS), ("bytes", facts["bytes"] <= MOST_BYTES),
                           ("at once", facts["at once"] >= LOADS_AT_ONCE), ("loops", facts["loops"] >= 2), ("fences", facts["fences"] <= MOST_FENCES)):
            if not good:
                wrong.append(f"{name}: {fact} {facts[fact]}")
    size = arguments.binary.stat().st_size / 1e6
    if arguments.library_limit and size > arguments.library_limit:
        wrong.append(f"{arguments.binary.name}: {size:.1f} MB")
    if seen == 0:
        wrong.append(f"no kernel for {arguments.architecture} in {arguments.binary}")
    if arguments.print:
        return 0
    print("\n".join(["wrong:", *wrong] if wrong else ["as they should be"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
