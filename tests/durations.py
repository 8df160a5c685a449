"""Prints what a test run took: the longest tests, and the sum by the first word of their names.

    durations.py RESULTS.xml    as `ctest --output-junit` writes them; printed by `make test`
"""

import collections
import sys
import xml.etree.ElementTree as ElementTree

LONGEST = 20


def main():
    times = {}
    for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        if case.get("status") != "disabled":
            times[case.get("name")] = float(case.get("time"))
    by_group = collections.Counter()
    for name, seconds in times.items():
        by_group[name.replace("_", ".").split(".")[0]] += seconds
    total = sum(times.values())
    longest = sorted(times.items(), key=lambda item: -item[1])[:LONGEST]
    groups = by_group.most_common(LONGEST)
    print(f"\n{len(times)} tests took {total:.0f} s, one after the other. The longest, and the longest groups:")
    for i in range(min(LONGEST, max(len(longest), len(groups)))):
        left = f"{longest[i][1]:8.1f} s  {longest[i][0]:44}" if i < len(longest) else " " * 56
        right = f"{groups[i][1]:8.1f} s  {groups[i][0]}" if i < len(groups) else ""
        print((left + right).rstrip())


if __name__ == "__main__":
    main()
