"""The `tutti` command, which is a program beside this file."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(__file__), "bin", "tutti")
    os.execv(program, ["tutti", *sys.argv[1:]])


if __name__ == "__main__":
    main()
