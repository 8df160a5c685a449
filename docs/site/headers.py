"""The reference of the C++ interface, from the public headers: their comments are the text, their declarations the code.

A header opens with a comment, which opens its page. What follows is a list of declarations, each behind its comment;
declarations without a blank line in between share one. Enumerations, and structs that have no functions, are shown as
they are. What is private, and the bodies of functions, are left out.
"""

import html
import re
from pathlib import Path

INDENTED = re.compile(r" {4,}|\|")


def lists(root):
    """The headers of the library and of the engines, as the CMake lists have them."""
    def of(file, name):
        text = re.sub(r"#.*", "", (root / file).read_text())
        return re.search(rf"set\({name}\s+([^)]*)\)", text)[1].split()
    return of("cmake/headers.cmake", "TUTTI_PUBLIC_HEADERS"), of("parallel/headers.cmake", "TUTTI_ENGINE_HEADERS")


def opening(lines):
    """The comment that a file begins with."""
    text = []
    for line in lines:
        if line.startswith("//") or (line.startswith("#") and not line.startswith(("#!", "#p", "#i"))):
            text.append(re.sub(r"^(//|#) ?", "", line))
        elif text or not line.startswith("#!"):
            break
    return text


def first_sentence(file):
    """What a file says about itself, in a sentence; empty if it says nothing."""
    if file.is_dir() or file.suffix not in (".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".c"):
        return ""
    lines = file.read_text().splitlines()
    if file.suffix == ".py":
        found = re.search(r'"""(.*?)(\n\n|""")', "\n".join(lines), re.S)
        text = found[1] if found else ""
    else:
        text = " ".join(opening(lines))
    text = re.sub(r"\s+", " ", text).strip()
    first = re.split(r"(?<=[.:;]) (?=[A-Za-z])", text)
    if len(first[0].split()) < 4 and len(first) > 1:  # "Mesh: the ranks of a job"
        first = [f"{first[0]} {first[1]}"]
    return prose([first[0].rstrip(":;")]).replace("|", "\\|").strip()


def prose(lines):
    """Comment lines as Markdown: indented lines are code, and words that are code look like it."""
    out, code = [], False
    for line in lines:
        if INDENTED.match(line):
            if not code:
                out.append("")
            out.append(line if line.startswith("    ") else "    " + line)
            code = True
            continue
        if code and line:
            out.append("")
        code = code and not line
        parts = re.split(r"(docs/[a-z-]+\.md(?:#[\w-]+)?|`[^`]+`)", line)
        for i, part in enumerate(parts):
            if part.startswith("`"):
                continue
            if i % 2:
                parts[i] = f"[{part[5:].partition('#')[0]}](@/{part})"
            else:
                pieces = re.split(r'((?:std::|tutti::)?[A-Za-z_~]\w*(?:::\w+)*(?:<[\w:]+>)?\([^()\s]*\)|'
                                  r'\b\w+(?:::\w+)+(?:<[\w:, ]+>)?|\b[A-Za-z]\w*_\w+(?:\[\w+\])?|<\w+(?:/[\w.]+)+>)', part)
                parts[i] = "".join(f"`{p}`" if j % 2 else re.sub(r"([*\[\]<>`])", r"\\\1", p) for j, p in enumerate(pieces))
        out.append("".join(parts))
    return "\n".join(out)


def closed(text):
    """Whether a declaration is over: brackets are closed, and it ends with ; or a body."""
    plain = re.sub(r"//.*|'.'|\"[^\"]*\"", "", text)
    return plain.count("(") == plain.count(")") and plain.count("{") == plain.count("}") and \
        re.search(r"[;}]\s*$", plain.rstrip())


def without_body(text):
    """A declaration of a function without its body and initialisers."""
    depth, plain = 0, re.sub(r"\s*//[^\n]*", "", text)
    for i, c in enumerate(plain):
        depth += c in "(" and 1 or c in ")" and -1 or 0
        if depth == 0 and c == "{" and ")" in plain[:i]:
            return re.sub(r"\)\s*:\s[^:].*$", ")", plain[:i].rstrip(), flags=re.S) + ";"
    return re.sub(r"\)\s*:\s[^:].*$", ");", text, flags=re.S) if re.search(r"\)\s*:\s", plain) else text


def name_of(declaration):
    plain = re.sub(r"template\s*<[^;{]*?>\s*(?=\w)|requires\b.*?\)\s*\)?\s*(?=struct)|//[^\n]*", "", declaration)
    if found := re.search(r"^\s*(?:template\b.*?)?\bstruct (\w+(?:<\w+>)?)", declaration, re.S):
        return found[1]
    for pattern in (r"\b(operator\s*(?:bool|[^\s\w(]+|\(\)))\s*\(", r"(~?[A-Za-z_]\w*)\s*\(", r"\b(?:using|concept|struct|class|enum class|friend)\s+(\w+)",
                    r"(\w+)\s*(?:=|\{|;|\[)"):
        if found := re.search(pattern, plain):
            return found[1]
    return declaration.split()[0]


class Reader:
    """Reads a header from top to bottom and makes its page."""

    def __init__(self, lines):
        self.lines, self.at = lines, 0
        self.out = []

    def entry(self, comment, declarations, level):
        names = list(dict.fromkeys(name_of(d) for d in declarations))
        title = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        code = "\n".join(without_body(d) for d in declarations)
        indent = min((len(l) - len(l.lstrip()) for l in code.splitlines() if l.strip()), default=0)
        code = "\n".join(l[indent:] for l in code.splitlines())
        self.out.append(f"{'#' * level} {title}\n\n```cpp\n{code}\n```\n\n{prose(comment)}\n")

    def declaration(self):
        text = self.lines[self.at]
        self.at += 1
        while not closed(text) and self.at < len(self.lines):
            text += "\n" + self.lines[self.at]
            self.at += 1
        return text

    def scope(self, level, shown):
        """Until the } of a class, or the end: its declarations."""
        comment, declarations = [], []

        def flush():
            nonlocal comment, declarations
            declarations = [d for d in declarations if not re.search(r"^\s*(friend class|struct \w+;|class \w+;|extern )", d)]
            if declarations:
                self.entry(comment, declarations, level)
            comment, declarations = [], []

        while self.at < len(self.lines):
            line = self.lines[self.at]
            stripped = line.strip()
            if level > 2 and re.match(r"\};?$", stripped):
                flush()
                self.at += 1
                return
            if re.match(r"(public|private|protected):", stripped):
                flush()
                shown = stripped.startswith("public")
                self.at += 1
            elif not stripped or stripped.startswith(("#", "namespace", "}", "extern \"C\"")):
                flush()
                self.at += 1
            elif stripped.startswith("//"):
                if declarations:
                    flush()
                comment.append(re.sub(r"^///? ?", "", stripped))
                self.at += 1
            elif found := re.match(r"(?:class|struct) (?:\w+\s+)?(\w+)[^;()]*\{$", stripped):
                before = self.at
                whole = self.declaration()
                plain = re.sub(r"//.*", "", whole)
                kept, comment = comment, []
                if declarations:
                    flush()
                if not shown:
                    continue
                if stripped.startswith("struct") and (not re.search(r"\w\(", plain) or len(whole.splitlines()) < 45):
                    whole = re.sub(r"\n\n private:.*?\n\};", "\n};", whole, flags=re.S)
                    indent = len(line) - len(line.lstrip())
                    code = "\n".join(l[indent:] for l in whole.splitlines())
                    self.out.append(f"{'#' * level} {found[1]}\n\n{prose(kept)}\n\n```cpp\n{code}\n```\n")
                else:
                    self.at = before + 1
                    self.out.append(f"{'#' * level} {stripped.rstrip(' {')}\n\n{prose(kept)}\n")
                    self.scope(level + 1, stripped.startswith("struct"))
            else:
                text = self.declaration()
                if shown and re.match(r"\s*template\b[^{;]*\bstruct\b[^{;]*\{", text):
                    kept, comment = comment, []
                    if declarations:
                        flush()
                    title = name_of(text)
                    self.out.append(f"{'#' * level} {title}\n\n{prose(kept)}\n\n```cpp\n{text}\n```\n")
                elif shown and (found := re.match(r"\s*(template\b[^{;]*)\bclass (\w+)[^{;]*\{", text)):
                    self.at -= len(text.splitlines())
                    while not self.lines[self.at].rstrip().endswith("{"):
                        self.at += 1
                    self.at += 1
                    self.out.append(f"{'#' * level} class {found[2]}\n\n{prose(comment)}\n")
                    comment = []
                    self.scope(level + 1, False)
                elif shown:
                    declarations.append(text)
                else:
                    comment = []
        flush()


def page(root, header):
    lines = (root / header).read_text().splitlines()
    intro = opening(lines)
    reader = Reader(lines[len(intro):])
    reader.scope(2, True)
    return f"# {header}\n\n    #include <tutti/{header}>\n\n{prose(intro)}\n\n" + "\n".join(reader.out)


def index(root, public, engines):
    def table(names):
        return "| header | |\n|---|---|\n" + "".join(f"| [{n}]({n}.md) | {first_sentence(root / n)} |\n" for n in names)
    lists = "\n".join(f"{n}" for n in public + engines)
    return ("# C++\n\nThe headers that are installed, and what their comments say: counts are in elements, sizes in bytes, times of\n"
            "`std::chrono`; every function throws `tutti::Error` ([core/error.h](core/error.h.md)), and says which code.\n\n"
            f"## The library\n\n{table(public)}\n## The engines\n\n{table(engines)}\n"
            f"```{{toctree}}\n:hidden:\n\n{lists}\n```\n")
