"""Pages with one fault each, in which blocks.py has to find it: blocks_mutants.py ROOT BUILD

The page without a fault passes.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = """# A page

<!-- file: a.cpp -->

```cpp
#include <tutti/tutti.h>
int main() { return tutti::kDataTypes; }
```

<!-- compiles: tutti -->

```cpp
#include <tutti/core/types.h>
static_assert(tutti::size_of(tutti::DataType::int8) == 1);
```

Text.

    $ cat a.cpp
    int main() { return tutti::kDataTypes; }
    ...

<!-- fails: 3 -->

    exit 3

<!-- needs: a-program-that-is-nowhere -->

    false

More text.

<!-- not run: it would fail -->

    false

<!-- not run: it would take long -->

    make clean && tutti run --tag -n 2 tests/docs/blocks.py

<!-- part: one -->

    return 1;
"""
PARTS = """int one() {
  // PART(one)
}
"""
# What is replaced, by what, and a word of what blocks.py says then.
MUTANTS = [
    ("exit 3", "exit 0", "status 0, expected 3"),
    ("a-program-that-is-nowhere", "sh", "status 1"),
    ("    int main() { return", "    int main() { returns", "the output lacks"),
    ("int8) == 1", "int8) == 2", "static assertion failed"),
    ("<!-- compiles: tutti -->", "", "has to say what this block is"),
    ("not run: it would fail", "not run: x", "needs a reason"),
    ("<!-- not run: it would fail -->", "", "status 1"),
    ("<!-- file: a.cpp -->", "<!-- file: b.cpp -->", "status 1"),
    ("exit 3", "sleep 100", "not over after"),
    ("make clean", "make cleen", "make knows no cleen"),
    ("tutti run --tag -n 2", "false; tutti run --tagg -n 2", "tutti run has no --tagg"),
    ("docs/blocks.py", "docs/block.py", "there is no tests/docs/block.py"),
    ("part: one", "part: two", "no page has the part one"),
    ("return 1;", "return x;", "'x' was not declared"),
    ("<!-- file: a.cpp -->\n\n```cpp\n#include <tutti/tutti.h>\n", "<!-- file: a.cpp -->\n\n```cpp\n// from_environment\n",
     "should print what()"),
]


def run(text, root, build):
    with tempfile.TemporaryDirectory() as folder:
        page, parts = Path(folder) / "page.md", Path(folder) / "parts.cpp"
        page.write_text(text)
        parts.write_text(PARTS)
        return subprocess.run([sys.executable, Path(__file__).with_name("blocks.py"), page, "--root", root, "--build", build,
                               "--parts", parts, "--timeout", "20" if "sleep" not in text else "2"], capture_output=True, text=True,
                              env=os.environ | {"LC_ALL": "C"})


def main():
    root, build = sys.argv[1:]
    ended = run(PAGE, root, build)
    if ended.returncode or "as they need a-program" not in ended.stdout:
        sys.exit(f"the page without a fault does not pass:\n{ended.stdout}{ended.stderr}")
    for before, after, says in MUTANTS:
        if PAGE.count(before) != 1:
            sys.exit(f"{before} is not in the page once")
        ended = run(PAGE.replace(before, after), root, build)
        if ended.returncode == 0 or says not in ended.stderr:
            sys.exit(f"{before} -> {after}: not found:\n{ended.stdout}{ended.stderr}")
    print(f"{len(MUTANTS)} faults were found")


main()
