"""Doc comments can be read alone: comments.py ROOT

A reader meets a doc comment by itself, in an editor or on a page of the reference. So one that begins with "And", that says
"It." or "The same, with a limit", or that goes on with the sentence of the comment above, does not say what it is about. This
finds these openings alone, which are never right; it does not judge the rest of a comment.
"""

import re
import sys
from pathlib import Path

FOLDERS = """core topology transport collectives bootstrap device comm parallel tools bench
             bindings/c10d bindings/nccl bindings/python bindings/torch bindings/windows""".split()
OPENING = re.compile(r"(and|or|but|in|of|for|to|with|where|its|it)\b(?! ?[(\[<=:-])"  # lower case: a sentence that goes on
                     r"|(It|They|Both|Packed|All of it|Some of them)[.;]"
                     r"|(And|Or|But)\b|Whether (it|they) (is|are|was|were|has|have|does|do|can)\b"
                     r"|(As|See) above[.,;]|The same[.,;:]|The others?[.:]|Those of (it|them)\b")
COMMENT = re.compile(r"\s*/// ?(.*)")


def comments(text):
    """The doc comments of a file: (line, text)."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        first, words = at, []
        while at < len(lines) and (found := COMMENT.match(lines[at])):
            words.append(found[1])
            at += 1
        if words:
            yield first + 1, " ".join(words)
        at += 1


def main():
    root, wrong, number = Path(sys.argv[1]), [], 0
    for example, bad in {"It. Valid where ready().": True, "and for this memory.": True, "Whether it does.": True,
                         "The same, with a limit.": True, "The same bits on all ranks.": False,
                         "in[c], as the plan has it.": False, "to(1) <- in[0]": False}.items():
        if bool(OPENING.match(example)) != bad:
            sys.exit(f"comments.py takes '{example}' for {'a right' if bad else 'a wrong'} one")
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.h")):
            for line, comment in comments(file.read_text()):
                number += 1
                if OPENING.match(comment):
                    wrong.append(f"{file.relative_to(root)}:{line}: '{comment[:80]}': of what? Name the subject")
    if wrong or number < 1000:
        sys.exit("\n".join(wrong) + f"\n{len(wrong)} of {number} doc comments cannot be read alone")
    print(f"{number} doc comments have a subject")


main()
