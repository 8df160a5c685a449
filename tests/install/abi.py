"""What compiled programs take for granted of the libraries, compared with what the last release gave them.

    abi.py ROOT COMPILER NM LIBRARY... [--write]

It compiles the installed headers, and reads from the debugger's records each class with the places of its members, each
enumerator with its number, and each function with its result; of the functions those that a LIBRARY exports. What
tests/install/abi.txt has and they no longer have is an error: a program that was compiled before would not start, or
would go wrong. So the library's name needs a new second number (docs/packages.md). What is new is no error. --write writes
the file. The records are those of GCC for a 64-bit machine.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

SCOPES = ("namespace", "class_type", "structure_type", "union_type", "enumeration_type")


class Entry:
    """One record of DWARF: what kind of thing, in what, with which attributes."""

    def __init__(self, tag, parent):
        self.tag, self.parent, self.children, self.attributes = tag, parent, [], {}

    def get(self, attribute):
        return self.attributes.get(attribute)

    def name(self):
        """With all that it is in: tutti::Error::Kind."""
        own = self.get("name") or f"({self.tag.removesuffix('_type')})"
        outer = self.parent.name() if self.parent and self.parent.tag in SCOPES else ""
        return f"{outer}::{own}" if outer else own


def records(text):
    """The entries by their numbers, from what readelf prints."""
    entries, open_entries = {}, []
    for line in text.splitlines():
        if head := re.match(r" <(\w+)><(\w+)>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)", line):
            depth = int(head[1], 16)
            parent = open_entries[depth - 1] if depth else None
            entry = entries[head[2]] = Entry(head[3], parent)
            del open_entries[depth:]
            open_entries.append(entry)
            if parent:
                parent.children.append(entry)
        elif found := re.match(r"    <\w+>\s+DW_AT_(\w+)\s*: (?:\(\w+\) )?(?:\(.*offset: \w+\): )?(.*)", line):
            open_entries[-1].attributes[found[1]] = found[2].strip()
    return entries


class Description:
    def __init__(self, text):
        self.entries = records(text)

    def type_of(self, entry):
        """The type's name: `const float*`."""
        if not entry.get("type"):
            return "void"
        found = self.entries[re.match("<0x(\\w+)>", entry.get("type"))[1]]
        if found.tag == "const_type":
            return f"const {self.type_of(found)}"
        if found.tag == "array_type":
            bounds = "".join(f"[{c.get('upper_bound')}]" for c in found.children)
            return f"{self.type_of(found)} up to {bounds}"
        if found.tag == "subroutine_type":
            return f"{self.type_of(found)}({self.parameters(found)})"
        signs = {"pointer_type": "*", "reference_type": "&", "rvalue_reference_type": "&&"}
        if found.tag in signs:
            return self.type_of(found) + signs[found.tag]
        return found.name()

    def parameters(self, entry):
        return ", ".join(self.type_of(c) for c in entry.children
                         if c.tag == "formal_parameter" and not c.get("artificial"))  # fmt: skip

    def lines(self, exported):
        """One for each thing that a program can depend on."""
        for entry in self.entries.values():
            name = entry.name()
            ours = name.startswith(("tutti::", "tutti_"))
            if entry.tag == "subprogram" and not entry.get("specification"):
                yield from self.function(entry, name, exported)
            elif not ours or entry.get("declaration"):
                continue
            elif entry.tag == "enumeration_type":
                yield f"{name}: {entry.get('byte_size')} bytes"
                for one in entry.children:
                    yield f"{name}: {one.get('name')} = {one.get('const_value')}"
            elif entry.tag in SCOPES and entry.get("byte_size"):
                yield f"{name}: {entry.get('byte_size')} bytes"
                for one in entry.children:
                    if one.get("data_member_location"):
                        kind = "is a" if one.tag == "inheritance" else f"{one.get('name')}:"
                        yield f"{name}: at {one.get('data_member_location')} {kind} {self.type_of(one)}"

    def function(self, entry, name, exported):
        linked = entry.get("linkage_name") or name
        # The records have one constructor where the library has two: of a whole object, and of a base.
        for symbol in {linked, re.sub(r"([CD])4(E)", r"\g<1>1\2", linked)}:
            if symbol in exported and (symbol.startswith("tutti_") or "5tutti" in symbol):
                slot = f", slot {entry.get('vtable_elem_location')}" if entry.get("vtable_elem_location") else ""
                yield f"{symbol}({self.parameters(entry)}): {self.type_of(entry)}{slot}"


def output(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, **options).stdout


def free_functions(exported, texts, known):
    """Those of namespace tutti that the headers declare, with any parameters; the records have none that is not called."""
    for name in output("c++filt", input="\n".join(sorted(n for n in exported if re.match("_ZN5tutti[1-9]", n)))).splitlines():
        function = re.match(r"tutti::(\w+)(?:\[[^]]*\])?\((.*)\)$", name)
        if function and re.search(rf"\b{function[1]}\(", texts) and set(re.findall(r"tutti::\w+", function[2])) <= known:
            yield name


def describe(root, compiler, nm, libraries):
    names = re.search(r"TUTTI_PUBLIC_HEADERS([^)]*)", (root / "cmake/headers.cmake").read_text())[1].split()
    headers = [root / name for name in [*names, "bindings/c/tutti_c.h"]]
    texts = {header: re.sub("//.*", "", header.read_text()) for header in headers}
    with tempfile.TemporaryDirectory() as folder:
        source, compiled = pathlib.Path(folder) / "all.cpp", pathlib.Path(folder) / "all.o"
        used = enumerate(sorted(set(re.findall(r"\b(tutti_\w+)\(", texts[headers[-1]]))))
        source.write_text("".join(f'#include "{header}"\n' for header in headers) +
                          "".join(f"extern const auto use_{i} = &{name};\n" for i, name in used))  # fmt: skip
        whole = ["-fno-eliminate-unused-debug-types", "-fno-eliminate-unused-debug-symbols"]
        output(compiler, "-std=c++20", "-g", *whole, f"-I{root}", "-c", source, "-o", compiled)
        description = Description(output("readelf", "--debug-dump=info", compiled))
    exported = set()
    for library in libraries:
        # Strong ones: a weak one is an inline function's, which the compiler has written out, or has not.
        exported |= {re.sub("@.*", "", name) for name in re.findall(r" [TBDR] (\S+)", output(nm, "-D", library))}
    known = {entry.name() for entry in description.entries.values() if entry.tag in SCOPES}
    return sorted({*description.lines(exported), *free_functions(exported, "".join(texts.values()), known)})


def readable(lines):
    return output("c++filt", "--no-params", input="\n".join(lines)).splitlines()


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    root = pathlib.Path(arguments[0])
    stored = root / "tests/install/abi.txt"
    now = describe(root, arguments[1], arguments[2], arguments[3:])
    if len(now) < 200:
        sys.exit(f"abi.py: only {len(now)} things were found: the headers were not read")
    if "--write" in sys.argv:
        stored.write_text("\n".join(now) + "\n")
        return
    before = stored.read_text().splitlines()
    gone = [line for line in before if line not in set(now)]
    new = [line for line in now if line not in set(before)]
    for mark, lines in ("-", gone), ("+", new):
        for line in readable(lines):
            print(mark, line)
    if gone:
        sys.exit(f"abi.py: programs that are compiled already take {len(gone)} things for granted that are no longer so (-). Keep "
                 "them, or give the version in CMakeLists.txt a new second number and write the file: `make abi`")  # fmt: skip
    print(f"{len(before)} things are as they were, {len(new)} are new")


if __name__ == "__main__":
    main()
