#!/usr/bin/env python3
"""Which files of Tutti a call passes: those of which each call of a loop runs at least one instruction, by the line
tables of the build. And the sizes of what is around: the headers that comm/impl.cpp includes, and the knot in comm/.

    cmake -S . -B build-road -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTUTTI_BUILD_TESTS=OFF
    ninja -C build-road tutti nccl
    bench/road/road.py build-road [--calls 200] [--files]

Two ranks make the calls under valgrind's callgrind, which counts on rank 0: the second time that the loop runs. Files
that hold data alone have no instructions, and do not count. Needs valgrind and a C++ compiler; takes half a minute.
"""
import argparse
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Name, mode of the program, and whether each rank is on a host of its own.
ROADS = [
    ("all_reduce again, one host", "same", False),
    ("other buffers, one host", "varied", False),
    ("started, one host", "started", False),
    ("all_reduce again, TCP", "same", True),
    ("other buffers, TCP", "varied", True),
    ("ncclAllReduce again, one host", "nccl", False),
]


def files_of(profile, calls):
    """By file of this tree: the instructions that it ran for each call. (The line after `calls=` is the callee's.)"""
    names, counts, here, callee = {}, {}, "", False
    for line in profile.read_text().splitlines():
        named = re.match(r"(fl|fi|fe|cfl|cfi)=\((\d+)\)(?: (.*))?", line)
        if named:
            if named[3]:
                names[named[2]] = named[3]
            if not named[1].startswith("c"):
                here = names[named[2]]
        elif line.startswith("calls="):
            callee = True
        elif re.match(r"[+\-*\d]", line):
            if not callee and len(line.split()) > 1:
                counts[here] = counts.get(here, 0) + int(line.split()[1])
            callee = False
    inside = {}
    for name, count in counts.items():
        path = pathlib.Path(os.path.normpath(name))
        if path.is_relative_to(ROOT) and count >= calls and path.parent != ROOT / "bench/road":
            inside[str(path.relative_to(ROOT))] = count / calls
    return inside


def road(program, mode, apart, calls, folder, libraries):
    """What rank 0 passes."""
    profile, meeting = folder / "profile", folder / "id"
    meeting.unlink(missing_ok=True)
    ranks = []
    for rank in (1, 0):
        # They spin while they wait, so that it does not count what else the machine has to do.
        mine = {"TUTTI_RANK": str(rank), "TUTTI_SIZE": "2", "TUTTI_ID_FILE": str(meeting), "TUTTI_SPIN": "1000000000"}
        if apart:
            mine["TUTTI_HOST_ID"] = f"road-{rank}"
        out = profile if rank == 0 else folder / "other"
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=road_of_a_call",
                    f"--callgrind-out-file={out}", "--fair-sched=try"]
        ranks.append(subprocess.Popen([*valgrind, str(program), mode, str(calls)], stderr=subprocess.PIPE, text=True,
                                      env={**os.environ, "LD_LIBRARY_PATH": str(libraries), **mine}))
    try:
        for rank in ranks:
            said = rank.communicate(timeout=120)[1]  # valgrind says much that is of no interest here
            if rank.returncode != 0:
                raise SystemExit(f"road.py: a rank of {mode} failed:\n{said}")
    finally:
        for rank in ranks:
            rank.kill()
    return files_of(profile, calls)


def includes(path):
    """The files of this tree that a file includes."""
    found = []
    for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)', path.read_text(), re.M):
        for candidate in (ROOT / name.removeprefix("tutti/"), path.parent / name):
            if candidate.is_file():
                found.append(candidate.resolve())
                break
    return found


def closure(path):
    seen, left = set(), [path]
    while left:
        new = set(includes(left.pop())) - seen
        seen |= new
        left += new
    return seen


def knot():
    """The parts of comm/ (a header with its source) that include each other in circles, and all arrows among parts."""
    arrows = {}
    for path in (ROOT / "comm").glob("*.*"):
        if path.suffix in (".h", ".cpp"):
            ends = {p.stem for p in includes(path) if p.parent == ROOT / "comm"}
            arrows.setdefault(path.stem, set()).update(ends - {path.stem})

    def reached(part):
        seen, left = set(), [part]
        while left:
            new = arrows.get(left.pop(), set()) - seen
            seen |= new
            left += new
        return seen

    return {part for part in arrows if part in reached(part)}, arrows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a build folder with line tables (-g1)")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--files", action="store_true", help="name the files, with instructions for each call")
    a = parser.parse_args()
    headers = closure(ROOT / "comm/impl.cpp")
    lines = sum(len(h.read_text().splitlines()) for h in headers)
    circle, arrows = knot()
    inner = sum(len(ends & circle) for part, ends in arrows.items() if part in circle)
    print(f"comm/impl.cpp includes {len(headers)} headers of {lines} lines; in comm/ {len(circle)} of {len(arrows)} "
          f"parts include each other in circles, by {inner} of {sum(map(len, arrows.values()))} arrows")
    libraries = a.build.resolve() / "lib"
    nccl = (libraries / "libnccl.so").exists()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        program = folder / "road"
        subprocess.run(["g++", "-std=c++20", "-O1", "-g1", f"-I{ROOT}", ROOT / "bench/road/road.cpp", "-o", program,
                        f"-L{libraries}", "-ltutti", *(["-DWITH_NCCL", "-lnccl"] if nccl else [])], check=True)
        for name, mode, apart in ROADS:
            if mode == "nccl" and not nccl:
                continue
            files = road(program, mode, apart, a.calls, folder, libraries)
            print(f"{len(files):3} files, {sum(files.values()):6.0f} instructions: {name}", flush=True)
            for file in sorted(files) if a.files else []:
                print(f"      {file} {files[file]:.0f}")


if __name__ == "__main__":
    main()
