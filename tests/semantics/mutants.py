#!/usr/bin/env python3
"""Shows that the tests of docs/semantics.md notice what they are there for: changes the library in one
place after the other, builds it, and expects the tests to fail. Run by hand in the project's folder,
with a build in BUILD; 1 to 3 minutes for each mutant. Every source is restored, also after Ctrl-C.

    tests/semantics/mutants.py build              # all
    tests/semantics/mutants.py build nan_max      # some, by name
    tests/semantics/mutants.py build --ninja "ninja -j1"
"""

import argparse
import pathlib
import shlex
import subprocess
import sys
import time

LOOPS = "core/combine_loops-inl.h"
DEVICE = "collectives/execute/cuda/element.h"
# Name: (file, what is there once, what is there instead)
MUTANTS = {
    "nan_max": (
        LOOPS,
        "return unless_nan(a, b, hn::And(hn::Max(a, b), hn::Max(b, a)));",
        "return hn::And(hn::Max(a, b), hn::Max(b, a));",
    ),
    "nan_min_on_one_side": (
        LOOPS,
        "return unless_nan(a, b, hn::Or(hn::Min(a, b), hn::Min(b, a)));",
        "return unless_nan(a, a, hn::Or(hn::Min(a, b), hn::Min(b, a)));",
    ),
    "sign_of_zero_min": (LOOPS, "hn::Or(hn::Min(a, b), hn::Min(b, a))", "hn::Min(a, b)"),
    "sign_of_zero_max": (LOOPS, "hn::And(hn::Max(a, b), hn::Max(b, a))", "hn::Max(a, b)"),
    "rounded_once_more": (
        LOOPS,
        "      add<n>(sums, values);\n    }\n    if (!plain",
        "      add<n>(sums, values);\n"
        "      for (int u = 0; u < n; ++u) sums[u] = Type::unpack(Type::pack(sums[u]));\n"
        "    }\n    if (!plain",
    ),
    "written_past_the_end": (
        LOOPS,
        "hn::BlendedStore(Type::pack(value), first(bytes), Tag(), reinterpret_cast<Element*>(to));",
        "(void)bytes; store(value, to);",
    ),
    "average_rounds_down": (
        "core/combine.cpp",
        "value = static_cast<Integer>(static_cast<Wide>(value) / by);",
        "value = static_cast<Integer>((static_cast<Wide>(value) - (value < 0 ? by - 1 : 0)) / by);",
    ),
    "average_divides_last": (
        "collectives/execute/host/operation.cpp",
        "const bool divides_sum = canonical_ ||",
        "const bool divides_sum = true ||",
    ),
    "environment_of_the_thread": (
        "core/float_environment.h",
        "if (differs()) write(kDefault);",
        "if (differs()) write(before_);",
    ),
    "compressed_infinity": (
        "core/compressed.cpp",
        "rounded = hn::IfThenElse(hn::RebindMask(integers, is_finite), rounded, not_finite);",
        "(void)not_finite;",
    ),
    "device_nan": (
        DEVICE,
        "if (a != a || b != b) return std::numeric_limits<W>::quiet_NaN();",
        "if (a != a) return b;",
    ),
    "device_sign_of_zero": (DEVICE, "if (a == b) {", "if (a == b && a != 0) {"),
    "barrier_hears_of_half": (
        "collectives/algorithms/barriers.cpp",
        "distance < n; distance *= 2",
        "2 * distance < n; distance *= 2",
    ),
    "future_returns_early": (
        "comm/future.cpp",
        "bool Future::ready() const { return !state_ ||",
        "bool Future::ready() const { return true || !state_ ||",
    ),
    "nothing_waits": (
        "comm/bind.cpp",
        "return sizes.largest == 0 && call.collective != Collective::barrier &&",
        "return false && sizes.largest == 0 && call.collective != Collective::barrier &&",
    ),
    "overlap_is_taken": (
        "comm/bind.cpp",
        "if (in_bytes == 0 || out_bytes == 0 || in >= out + out_bytes || out >= in + in_bytes) return;",
        "if (in_bytes == 0 || out_bytes == 0 || in != out) return;",
    ),
    "root_is_not_compared": (
        "comm/bind.cpp",
        "if (is_rooted(call.collective)) s.root = call.root;",
        "",
    ),
    "operator_is_not_compared": (
        "comm/bind.cpp",
        "if (is_reduction(call.collective)) s.kind = call.op.kind;",
        "",
    ),
}


def build(ninja, folder):
    command = [*shlex.split(ninja), "-C", folder, "semantics_test", "semantics_rank"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def tests_fail(folder):
    """The first lines of what the tests say, or None if all pass."""
    tests = pathlib.Path(folder) / "tests"
    commands = [
        [tests / "semantics_test", "--gtest_brief=1", "--gtest_fail_fast"],
        [pathlib.Path(folder) / "bin/tutti", "run", "-n", "3", tests / "semantics_rank", "late"],
    ]
    for command in commands:
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150
            )
        except subprocess.TimeoutExpired:
            return "no end within 150 s"
        if done.returncode != 0:
            failed = [s for s in done.stdout.splitlines() if "FAILED  ]" in s or "rank " in s]
            return (failed or done.stdout.splitlines() or [f"status {done.returncode}"])[0][:150]
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
    missed = []
    for name in arguments.names or MUTANTS:
        file, old, new = MUTANTS[name]
        path = pathlib.Path(file)
        source = path.read_text()
        if source.count(old) != 1:
            sys.exit(f"{name}: {file} has the place {source.count(old)} times; this script needs a change")
        begin = time.monotonic()
        try:
            path.write_text(source.replace(old, new))
            built = build(arguments.ninja, arguments.build)
            if built.returncode != 0:
                sys.exit(f"{name} does not compile:\n{built.stdout[-3000:]}")
            said = tests_fail(arguments.build)
        finally:
            path.write_text(source)
        if said is None:
            missed.append(name)
        seconds = time.monotonic() - begin
        print(f"{name:28} {'MISSED' if said is None else 'noticed'} {seconds:5.0f} s  {said or ''}", flush=True)
    built = build(arguments.ninja, arguments.build)
    if built.returncode != 0:
        sys.exit(f"the unchanged sources do not compile:\n{built.stdout[-3000:]}")
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
