"""Compares the constants of bindings/mpi/abi.h with those of another header of the standard's binary interface, by name, and
the list of procedures with its prototypes. By hand: the header is no part of the project.

    python3 tests/bindings/mpi/compare_abi.py PATH/include/mpi_abi.h    # of the wheel `mpich` 5, for instance
"""

import pathlib
import re
import sys

OURS = pathlib.Path(__file__).resolve().parents[3] / "bindings" / "mpi"


def constants(text):
    """Names with values: integers as numbers, others as text without spaces and casts."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    found = dict(re.findall(r"^\s*#define\s+(MPI_\w+)[ \t]+(\S.*?)\s*$", text, re.M))
    found |= dict(re.findall(r"\b(MPI_\w+)\s*=\s*(-?\w+)", text))
    return {name: resolve(found, value) for name, value in found.items()}


def resolve(found, value):
    while value in found:  # another name
        value = found[value]
    number = re.fullmatch(r"\(?(?:\(MPI_\w+\s*\**\)|\((?:void|char|int)\s*\**\))?\(?(-?(?:0[xX])?[0-9a-fA-F]+)\)?\)?", value)
    return int(number[1], 0) if number else value.replace(" ", "")


def procedures(text):
    return set(re.findall(r"\b(MPI_\w+)\s*\([^;{]*\)\s*;", re.sub(r"/\*.*?\*/", "", text, flags=re.S))) - set(
        re.findall(r"typedef[^;]*\((MPI_\w+)\)", text)
    )


def main(path):
    other_text = pathlib.Path(path).read_text()
    ours, other = constants((OURS / "abi.h").read_text()), constants(other_text)
    common = sorted(ours.keys() & other.keys())
    differ = [name for name in common if ours[name] != other[name]]
    for name in differ:
        print(f"{name}: {ours[name]} here, {other[name]} there")
    missing = sorted(n for n in other.keys() - ours.keys() if not n.startswith(("MPI_ABI_", "MPI_H_")))
    rows = set(re.findall(r"^TUTTI_MPI_\w+\([^,]+, (MPI_\w+),", (OURS / "procedures.def").read_text(), re.M))
    absent = sorted(procedures(other_text) - rows)
    print(f"{len(common)} constants in common, {len(differ)} differ; only there: {missing or 'none'}")
    print(f"{len(rows)} procedures here; only there: {absent or 'none'}")
    return 1 if differ or missing or absent else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
