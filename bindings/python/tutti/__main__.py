"""The `tutti` command, which is a program beside this file; and where pip has put the libraries:

    tutti --nccl            libnccl.so.2, for LD_PRELOAD
    tutti --cmake-dir       the CMake package, for -Dtutti_DIR=
    tutti --include-dir     the C++ headers
"""

import os
import sys

from tutti.installation import FOLDER, PLACES


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1] in PLACES:
        print(PLACES[sys.argv[1]])
        return
    program = str(FOLDER / "bin" / "tutti")
    try:
        os.execv(program, ["tutti", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tutti: {program} cannot be started: {error.strerror}; install the package anew")


if __name__ == "__main__":
    main()
