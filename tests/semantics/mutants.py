#!/usr/bin/env python3
"""Shows that the tests of docs/semantics.md notice what they are there for. Changes the library in many
places, each of which an environment variable turns on; builds it once; and expects the tests to fail
with each. Run by hand in the project's folder, with a build in BUILD: about 5 minutes. The sources are
restored, also after Ctrl-C; the next build makes the library as it was.

    tests/semantics/mutants.py build                        # all but device_*
    tests/semantics/mutants.py build nan_max device_nan     # some; device_* build GPU kernels anew
    tests/semantics/mutants.py build --ninja "ninja -j1"
"""

import argparse
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

LOOPS = "core/combine_loops-inl.h"
BIND = "comm/bind.cpp"
DEVICE = "execute/cuda/element.h"
MAX = "return unless_nan(a, b, hn::And(hn::Max(a, b), hn::Max(b, a)));"
MIN = "return unless_nan(a, b, hn::Or(hn::Min(a, b), hn::Min(b, a)));"
# Name: (file, what is there once, what is there instead; MUTANT is true where this one is on)
MUTANTS = {
    "nan_max": (LOOPS, MAX, "if (MUTANT) return hn::And(hn::Max(a, b), hn::Max(b, a));\n" + MAX),
    "nan_min_on_one_side": (
        LOOPS,
        MIN,
        "if (MUTANT) return unless_nan(a, a, hn::Or(hn::Min(a, b), hn::Min(b, a)));\n" + MIN,
    ),
    "sign_of_zero_max": (LOOPS, MAX, "if (MUTANT) return unless_nan(a, b, hn::Max(a, b));\n" + MAX),
    "sign_of_zero_min": (LOOPS, MIN, "if (MUTANT) return unless_nan(a, b, hn::Min(a, b));\n" + MIN),
    "rounded_once_more": (
        LOOPS,
        "      add<n>(sums, values);\n    }\n    if (!plain",
        "      add<n>(sums, values);\n"
        "      for (int u = 0; MUTANT && u < n; ++u) sums[u] = Type::unpack(Type::pack(sums[u]));\n"
        "    }\n    if (!plain",
    ),
    "written_past_the_end": (
        LOOPS,
        "    hn::BlendedStore(Type::pack(value), first(bytes)",
        "    if (MUTANT) return store(value, to);\n    hn::BlendedStore(Type::pack(value), first(bytes)",
    ),
    "average_rounds_down": (
        "core/combine.cpp",
        "static_cast<Integer>(static_cast<Wide>(value) / by);",
        "static_cast<Integer>((static_cast<Wide>(value) -\n"
        "    (MUTANT && static_cast<double>(value) < 0 ? by - 1 : 0)) / by);",
    ),
    "average_divides_last": (
        "execute/host/operation.cpp",
        "const bool divides_sum = canonical_ ||",
        "const bool divides_sum = MUTANT || canonical_ ||",
    ),
    "environment_of_the_thread": (
        "core/float_environment.h",
        "if (differs()) write(kDefault);",
        "if (differs() && !MUTANT) write(kDefault);",
    ),
    "environment_is_kept": (
        "core/float_environment.h",
        "if (differs()) write(before_);",
        "if (differs() && !MUTANT) write(before_);",
    ),
    "compressed_infinity": (
        "core/compressed.cpp",
        "rounded = hn::IfThenElse(hn::RebindMask(integers, is_finite), rounded, not_finite);",
        "if (!MUTANT) rounded = hn::IfThenElse(hn::RebindMask(integers, is_finite), rounded, not_finite);",
    ),
    "barrier_hears_of_half": (
        "collectives/algorithms/barriers.cpp",
        "distance < n; distance *= 2",
        "(MUTANT ? 2 * distance : distance) < n; distance *= 2",
    ),
    "future_returns_early": (
        "comm/future.cpp",
        "bool Future::ready() const { return !state_ ||",
        "bool Future::ready() const { return MUTANT || !state_ ||",
    ),
    "nothing_waits": (BIND, "return sizes.largest == 0 &&", "return !MUTANT && sizes.largest == 0 &&"),
    "overlap_is_taken": (
        BIND,
        "  if (in_bytes == 0 || out_bytes == 0 || in >= out + out_bytes",
        "  if (MUTANT && in != out) return;\n"
        "  if (in_bytes == 0 || out_bytes == 0 || in >= out + out_bytes",
    ),
    "root_is_not_compared": (
        BIND,
        "if (is_rooted(call.collective)) s.root",
        "if (is_rooted(call.collective) && !MUTANT) s.root",
    ),
    "operator_is_not_compared": (
        BIND,
        "if (is_reduction(call.collective)) s.kind",
        "if (is_reduction(call.collective) && !MUTANT) s.kind",
    ),
    "device_nan": (
        DEVICE,
        "    if (a != a || b != b) return",
        "    if (MUTANT && a != a) return b;\n    if (a != a || b != b) return",
    ),
    "device_sign_of_zero": (DEVICE, "if (a == b) {", "if (a == b && !(MUTANT && a == 0)) {"),
}
DECLARATION = """#if defined(__CUDA_ARCH__)
constexpr int tutti_mutant = 0;
#else
extern "C" int tutti_mutant;
#endif
"""
DEFINITION = """
#include <cstdlib>
extern "C" {
__attribute__((visibility("default"))) int tutti_mutant =
    std::getenv("TUTTI_MUTANT") != nullptr ? std::atoi(std::getenv("TUTTI_MUTANT")) : 0;
}
"""


def mutated(names):
    """The sources with these mutants, by path."""
    sources = {}
    for number, name in enumerate(names, 1):
        file, old, new = MUTANTS[name]
        if file not in sources:
            before, after = pathlib.Path(file).read_text().split("#include", 1)
            sources[file] = before + DECLARATION + "#include" + after
        if sources[file].count(old) != 1:
            sys.exit(f"{name}: {file} has its place {sources[file].count(old)} times: change this script")
        sources[file] = sources[file].replace(old, new.replace("MUTANT", f"(tutti_mutant == {number})"))
    sources["core/error.cpp"] = pathlib.Path("core/error.cpp").read_text() + DEFINITION
    return sources


def failure(folder, number):
    """What the tests say with this mutant, in a line; None if all pass. 0: no mutant."""
    tests = pathlib.Path(folder) / "tests"
    for command in (
        [tests / "semantics_test", "--gtest_brief=1", "--gtest_fail_fast"],
        [pathlib.Path(folder) / "bin/tutti", "run", "-n", "3", tests / "semantics_rank", "late"],
    ):
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "TUTTI_MUTANT": str(number)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=120,
            )
        except subprocess.TimeoutExpired:
            return "no end within 120 s"
        if done.returncode < 0:
            return f"signal {-done.returncode} ({signal.Signals(-done.returncode).name})"
        if done.returncode > 0:
            lines = done.stdout.splitlines()
            failed = [line for line in lines if line.startswith("[  FAILED  ]")]
            return (failed or lines or [f"status {done.returncode}"])[0][:150]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--ninja", default="ninja")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(MUTANTS)
    if unknown:
        sys.exit(f"there are no mutants {', '.join(sorted(unknown))}: {', '.join(MUTANTS)}")
    names = arguments.names or [name for name in MUTANTS if not name.startswith("device_")]
    sources = mutated(names)
    restore = {path: pathlib.Path(path).read_text() for path in sources}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    try:
        for path, text in sources.items():
            pathlib.Path(path).write_text(text)
        command = [*shlex.split(arguments.ninja), "-C", arguments.build]
        built = subprocess.run(
            [*command, "semantics_test", "semantics_rank"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        for path, text in restore.items():
            pathlib.Path(path).write_text(text)
    if built.returncode != 0:
        sys.exit(f"the mutants do not compile:\n{built.stdout[-3000:]}")
    said = failure(arguments.build, 0)
    if said is not None:
        sys.exit(f"the tests fail without a mutant: {said}")
    missed = []
    for number, name in enumerate(names, 1):
        begin = time.monotonic()
        said = failure(arguments.build, number)
        if said is None:
            missed.append(name)
        seconds = time.monotonic() - begin
        print(f"{name:26} {'MISSED' if said is None else 'noticed'} {seconds:4.0f} s  {said or ''}", flush=True)
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
