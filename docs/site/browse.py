"""Looks at the built site in a browser, as a reader would: browse.py HTML [--pictures FOLDER] [PAGE...]

Each page is opened from the disk, without a network, at the width of a telephone (390) and of a desk (1280), in headless
Chromium. A message on the console, an exception, a file that is missing or comes from elsewhere, and a page that is
wider than the screen, are faults. The search is tried too. --pictures keeps pictures of the pages that are named (PAGE,
as tutorial.html).

The browser is asked over its own protocol, in a pipe (--remote-debugging-pipe): no driver is needed.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WIDTHS = {"phone": (390, 844), "desk": (1280, 900)}
# The first thing that a reader would have to scroll the page for: only tables and code scroll by themselves.
WIDE = """((width) => {
  for (const e of document.querySelectorAll('article *')) {
    const box = e.getBoundingClientRect();
    if (box.width > 0 && box.right > width + 1 && !e.closest('pre, .table-wrapper')) {
      return e.tagName + ' ' + e.textContent.trim().slice(0, 40);
    }
  }
  return document.documentElement.scrollWidth > width ? 'the page' : '';
})"""


class Browser:
    def __init__(self, program):
        to_browser, ours = os.pipe()
        theirs, from_browser = os.pipe()

        def give():  # the browser reads descriptor 3 and writes descriptor 4
            a, b = os.dup(to_browser), os.dup(from_browser)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=give)
        os.close(to_browser)
        os.close(from_browser)
        self.out, self.into = os.fdopen(ours, "wb", 0), os.fdopen(theirs, "rb", 0)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def message(self, until):
        import select
        while b"\0" not in self.rest:
            if not select.select([self.into], [], [], max(0, until - time.monotonic()))[0]:
                sys.exit("the browser says nothing")
            data = os.read(self.into.fileno(), 1 << 16)
            if not data:
                sys.exit("the browser has ended")
            self.rest += data
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        self.out.write(json.dumps(request).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            message = self.message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def open(self, url):
        """The page is there when this returns; what it complained about."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        until = time.monotonic() + 60
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message(until))
        self.call("Runtime.evaluate", expression="new Promise(r => setTimeout(r, 20))", awaitPromise=True)
        return self.complaints()

    def complaints(self):
        found = []
        for event in self.events:
            what = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(what["exceptionDetails"].get("text", "exception"))
            elif event["method"] == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
                found.append(f"console: {what['args'][0].get('value', '?')}")
            elif event["method"] == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {what['entry']['text']}")
            elif event["method"] == "Network.requestWillBeSent" and not what["request"]["url"].startswith(("file:", "data:", "blob:")):
                found.append(f"asks the network: {what['request']['url']}")
        return found

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def size(self, kind):
        width, height = WIDTHS[kind]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=kind == "phone")

    def picture(self, file):
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("html", type=Path)
    arguments.add_argument("pages", nargs="*")
    arguments.add_argument("--pictures", type=Path)
    options = arguments.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("site: not looked at in a browser, as there is no chromium")
        return
    root = options.html.resolve()
    browser, wrong, seen = Browser(program), [], 0
    for kind in WIDTHS:
        browser.size(kind)
        for file in sorted(root.rglob("*.html")):
            name = str(file.relative_to(root))
            faults = browser.open(file.as_uri())
            if wide := browser.value(f"{WIDE}({WIDTHS[kind][0]})"):
                faults.append(f"is wider than {WIDTHS[kind][0]} ({wide})")
            wrong += [f"{name} ({kind}): {fault}" for fault in faults]
            seen += 1
            if options.pictures and name in options.pages:
                options.pictures.mkdir(parents=True, exist_ok=True)
                browser.picture(options.pictures / f"{name.replace('/', '-')}-{kind}.png")
    faults = browser.open((root / "search.html").as_uri() + "?q=peer_lost")
    until = time.monotonic() + 20
    while not (found := browser.value("document.querySelectorAll('#search-results li').length")) and time.monotonic() < until:
        time.sleep(0.2)
    if not found:
        faults.append("finds nothing for peer_lost")
    wrong += [f"search: {fault}" for fault in faults]
    if options.pictures:
        browser.picture(options.pictures / "search-desk.png")
    browser.end()
    if wrong:
        sys.exit("\n".join([f"{len(wrong)} faults:"] + wrong[:50]))
    print(f"site: {seen} views of pages without a fault, the search finds {found} places of peer_lost")


main()
