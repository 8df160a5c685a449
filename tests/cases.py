"""Whether every case of the GoogleTest programs is run by a test of ctest, and every such test runs a case.

    cases.py CTEST BUILD_FOLDER PROGRAM...

A program's cases are run in parts (cmake/tests.cmake), so one could be left out unnoticed: a file that has
no test, or a filter that matches less than it did.
"""

import collections
import json
import os
import subprocess
import sys


def cases(command):
    """What GoogleTest would run: "Suite.Case", sorted as it lists them."""
    listed = subprocess.run([*command, "--gtest_list_tests"], capture_output=True, text=True, timeout=60)
    if listed.returncode != 0:
        sys.exit(f"{' '.join(command)}: {listed.stdout}{listed.stderr}")
    result, suite = [], ""
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            result.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return result


def main():
    ctest, build, programs = sys.argv[1], sys.argv[2], sys.argv[3:]
    left = {os.path.realpath(program): collections.Counter(cases([program])) for program in programs}
    counts = {program: sum(each.values()) for program, each in left.items()}
    wrong = [f"{case}: {count} cases of {os.path.basename(program)} have this name"
             for program, each in left.items() for case, count in each.items() if count > 1]
    shown = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True,
                           check=True)
    tests = 0
    for test in json.loads(shown.stdout)["tests"]:
        command = test.get("command", [])
        if __file__ in command:
            continue
        for i, word in enumerate(command):
            program = os.path.realpath(word)
            if program not in left:
                continue
            tests += 1
            run = cases(command[i:])
            if not run:
                wrong.append(f"{test['name']} runs no case: {' '.join(command[i:])}")
            for case in run:
                left[program].pop(case, None)
            break
    wrong += [f"{case} of {os.path.basename(program)} is run by no test"
              for program, each in left.items() for case in each]
    print("\n".join(wrong + [f"{sum(counts.values())} cases in {len(programs)} programs, run by {tests} tests"]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
