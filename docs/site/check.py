"""Every link of the built site leads somewhere: check.py HTML

Each link, picture, script and sheet of each page names a file of the site, and each anchor a place in it. Addresses of
other sites are not asked, but a page may only link to them: what it loads (scripts, fonts, pictures) lies in the site.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("object", "data"), ("source", "src"), ("iframe", "src")}


class Page(HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.links, self.anchors = [], {"", "top"}
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("id", "name"):
            if attributes.get(name):
                self.anchors.add(attributes[name])
        for name in ("href", "src", "data"):
            if attributes.get(name) and (name != "data" or tag == "object"):
                self.links.append((tag, name, attributes[name]))


def main():
    root = Path(sys.argv[1]).resolve()
    pages = {file: Page(file) for file in sorted(root.rglob("*.html"))}
    wrong, seen, outside = [], 0, set()
    for file, page in pages.items():
        for tag, name, link in page.links:
            parts = urlsplit(link)
            seen += 1
            if parts.scheme or parts.netloc:
                outside.add(link)
                if (tag, name) in LOADS and parts.scheme != "data":
                    wrong.append(f"{file.relative_to(root)} loads {link}")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file():
                wrong.append(f"{file.relative_to(root)}: there is no {link}")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{file.relative_to(root)}: {parts.path or 'the page'} has no #{parts.fragment}")
    if wrong or len(pages) < 50:
        sys.exit("\n".join([f"{len(pages)} pages, {len(wrong)} faults:"] + wrong[:50]))
    print(f"site: {len(pages)} pages, {seen} links lead somewhere, {len(outside)} addresses of other sites")


main()
