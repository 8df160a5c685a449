"""Writes the pages of the site, for Sphinx: stage.py ROOT OUT [--stub FILE]

The pages are the Markdown of the repository, with its links changed: a link to a source file leads to a page that
shows the file, one to a public header to its reference, one to a folder to a list of what the folder has. So the
site has no dead link, and the Markdown stays readable where it is. The order of the pages is that of
docs/README.md: each of its bold lines is a part of the site, and the links of the table's first column are its pages.
A page that is not there, a link that leads nowhere, or a page of docs/ that docs/README.md does not name, is an error.
"""

import argparse
import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

import headers
import stub

LINK = re.compile(r"\]\(([^)\s]+)\)")
# A link that is named after its file, [memory.md](memory.md): without a text of its own it gets the title of the page.
NAMED = re.compile(r"\[[\w-]+\.md\]\((?!https?:)")
PICTURES = (".svg", ".png")
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".c": "c", ".py": "python", ".sh": "sh",
             ".cmake": "cmake", ".yaml": "yaml", ".toml": "toml", ".json": "json"}
# Front matter of pages that no list names, and that the search leaves out.
APART = "---\norphan: true\nnosearch: true\n---\n\n"


def place(path):
    """Where the site has a page of the repository."""
    if path == "README.md":
        return "index.md"
    if path == "docs/README.md":
        return "pages.md"
    if path.endswith("/README.md"):
        return path[: -len("/README.md")] + ".md"
    return (path[len("docs/"):] if path.startswith("docs/") else path).lower()


class Site:
    def __init__(self, root, out):
        self.root, self.out = root, out
        self.reference = {}  # header -> its page
        self.wanted = set()  # files and folders that pages link to
        self.wrong = []

    def write(self, page, text):
        file = self.out / page
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != text:  # Sphinx reads anew what has changed
            file.write_text(text)
        self.pages.add(page)

    def target(self, path):
        """The page of a file or folder of the repository."""
        if (self.root / path / "README.md").exists():
            path = posixpath.join(path, "README.md")
        if path.endswith(".md"):
            self.markdown.add(path)
            return place(path)
        if path in self.reference:
            return self.reference[path]
        if path.endswith(PICTURES):
            return path[len("docs/"):]
        self.wanted.add(path)
        return f"source/{path}/folder.md" if (self.root / path).is_dir() else f"source/{path}.md"

    def linked(self, text, path, page):
        """The text of `path`, which becomes `page`, with its links changed. Where `path` is none, they are those of the
        site already, but for links from the root of the repository (@/, as headers.py makes them)."""
        def change(match):
            link, _, anchor = match[1].partition("#")
            if not link or "://" in link or link.startswith("mailto:") or not (path or link.startswith("@/")):
                return match[0]
            start = "" if link.startswith("@/") else posixpath.dirname(path)
            found = posixpath.normpath(posixpath.join(start, link.removeprefix("@/")))
            if not (self.root / found).exists():
                self.wrong.append(f"{path}: there is no {found}")
                return match[0]
            new = posixpath.relpath(self.target(found), posixpath.dirname(page) or ".")
            if found.endswith(PICTURES):
                return f"]({new})"
            return f"]({new}#{anchor})" if anchor else f"]({new})"

        parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
        parts[::2] = [NAMED.sub("[](", LINK.sub(change, part)) for part in parts[::2]]
        return "".join(parts)

    def source(self, path):
        file = self.root / path
        if file.is_dir():
            rows = ""
            for entry in sorted(file.iterdir()):
                name = posixpath.join(path, entry.name)
                if entry.name.startswith((".", "__pycache__")):
                    continue
                shown = name in self.wanted or name in self.reference
                link = f"[{entry.name}]({posixpath.relpath(self.target(name), 'source/' + path)})" if shown else entry.name
                rows += f"| {link}{'/' if entry.is_dir() else ''} | {headers.first_sentence(entry)} |\n"
            page = f"source/{path}/folder.md"
            self.write(page, f"{APART}# {path}/\n\n| | |\n|---|---|\n" + self.linked(rows, "", page))
            return
        language = LANGUAGES.get(file.suffix, "cmake" if file.name == "CMakeLists.txt" else "text")
        self.write(f"source/{path}.md", f"{APART}# {path}\n\n``````{language}\n{file.read_text()}\n``````\n")

    def parts(self):
        """The parts of the site: (title, pages of the repository), as docs/README.md has them."""
        parts = []
        for line in (self.root / "docs/README.md").read_text().splitlines():
            if title := re.match(r"\*\*(.+)\*\*$", line):
                parts.append((title[1], []))
            elif line.startswith("| [") and parts:
                cell = line.split(" | ")[0]
                for link in LINK.findall(cell):
                    path = posixpath.normpath(posixpath.join("docs", link.partition("#")[0]))
                    if path.endswith(".md") and not any(path in p for _, p in parts):
                        parts[-1][1].append(path)
        named = {p for _, pages in parts for p in pages} | {"docs/README.md"}
        for page in sorted((self.root / "docs").glob("*.md")):
            if f"docs/{page.name}" not in named:
                self.wrong.append(f"docs/README.md does not name docs/{page.name}")
        return parts

    def contents(self, parts):
        """The lists of pages at the side, for Sphinx."""
        text = ""
        for title, pages in parts:
            lines = [re.sub(r"\.md$", "", place(p)) for p in pages if p != "README.md"]
            if title == "Reference":
                lines += ["reference/index", "reference/python"]
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(lines) + "\n```\n"
        return text

    def build(self, stub_file):
        self.pages, self.markdown = set(), set()
        public, engines = headers.lists(self.root)
        for header in public + engines:
            self.reference[header] = f"reference/{header}.md"
        parts = self.parts()
        self.markdown |= {p for _, pages in parts for p in pages} | {"README.md", "docs/README.md"}
        done = set()
        while self.markdown - done:
            for path in sorted(self.markdown - done):
                done.add(path)
                text = self.linked((self.root / path).read_text(), path, place(path))
                if path == "README.md":
                    text += self.contents(parts)
                elif not any(path in p for _, p in parts):
                    text = "---\norphan: true\n---\n\n" + text
                self.write(place(path), text)
        for header in public + engines:
            text = headers.page(self.root, header)
            self.write(self.reference[header], self.linked(text, header, self.reference[header]))
        self.write("reference/index.md", self.linked(headers.index(self.root, public, engines), "", "reference/index.md"))
        self.write("reference/python.md", stub.page(stub_file))
        done = set()
        while self.wanted - done:
            for path in sorted(self.wanted - done):
                done.add(path)
                self.source(path)
        shutil.copytree(self.root / "docs/pictures", self.out / "pictures", dirs_exist_ok=True)
        for old in self.out.rglob("*.md"):
            if str(old.relative_to(self.out)) not in self.pages:
                old.unlink()
        return not self.wrong


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("root", type=Path)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--stub", type=Path, help="_tutti.pyi of a build with the Python package")
    options = arguments.parse_args()
    site = Site(options.root.resolve(), options.out)
    if not site.build(options.stub):
        sys.exit("\n".join(["the site cannot be made:"] + site.wrong))
    print(f"site: {len(site.pages)} pages, of them {len(site.wanted)} of sources and {len(site.reference)} of headers")


main()
