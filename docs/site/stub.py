"""The reference of the Python package, from the type hints that its build makes (_tutti.pyi)."""

import ast
import inspect

NONE = """# Python

This site was built without the Python package, so it has no reference of it: `help(tutti)` has it, and [python.md](../python.md)
the whole picture. (`make test`, and then `make site`, builds it with both.)
"""


def signature(function):
    arguments = ast.unparse(function.args)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    kind = "".join(f"@{ast.unparse(d)}\n" for d in function.decorator_list if ast.unparse(d) != "overload")
    text = f"{kind}def {function.name}({arguments}){returns}"
    if len(text) > 100:
        text = f"{kind}def {function.name}(\n    " + arguments.replace(", ", ",\n    ") + f"){returns}"
    return text


def text_of(node):
    """A docstring as Markdown: indented lines stay code; what Markdown would take for its own is escaped."""
    text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
    lines = [line if line.startswith("    ") else line.replace("<", "\\<").replace("*", "\\*") for line in text.splitlines()]
    return "\n".join(lines)


def entries(body, level):
    """Functions of a module or a class; overloads of one name share a heading."""
    out, last = [], None
    for node in body:
        if isinstance(node, ast.FunctionDef):
            if node.name.startswith("_") and node.name not in ("__init__",):
                continue
            if not text_of(node) and node.name == "__init__" and len(node.args.args) < 2:
                continue
            if node.name != last:
                out.append(f"{'#' * level} {node.name}\n")
            out.append(f"```python\n{signature(node)}\n```\n\n{text_of(node)}\n")
            last = node.name
        elif isinstance(node, ast.ClassDef):
            bases = ", ".join(ast.unparse(b) for b in node.bases)
            out.append(f"{'#' * level} class {node.name}{f'({bases})' if bases else ''}\n\n{text_of(node)}\n")
            out += entries(node.body, level + 1)
            last = None
    return out


def page(file):
    if file is None or not file.exists():
        return NONE
    module = ast.parse(file.read_text())
    return "# Python\n\n[python.md](../python.md) has the whole picture; this is every class and function.\n\n" + \
        "\n".join(entries(module.body, 2))
