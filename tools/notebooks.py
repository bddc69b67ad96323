"""Runs the notebooks of docs/notebooks, cell by cell, and keeps what they print:
`python tools/notebooks.py [FILE …]`. No Jupyter is needed. `tests/test_notebooks.py` compares what
is kept with what comes.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def links(text: str) -> list[str]:
    """Files that a text links to."""
    return re.findall(r"\]\((?!https?:|#)([^)#]+)", text)


def run(notebook: dict[str, Any], name: str) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell, in order, in one namespace and the working folder: what is
    printed, and the value of a last expression as text.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        tree = ast.parse(source(cell), f"{name}, cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        value, printed = None, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"{name}, cell {number}", "exec"), names)
            if last is not None:
                value = eval(
                    compile(ast.Expression(last.value), f"{name}, cell {number}", "eval"), names
                )
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            text = printed.getvalue().splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": text})
        if value is not None:
            outputs.append(
                {
                    "output_type": "execute_result",
                    "execution_count": number,
                    "metadata": {},
                    "data": {"text/plain": repr(value).splitlines(keepends=True)},
                }
            )
        found.append(outputs)
    return found


def filled(notebook: dict[str, Any], outputs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The notebook with these outputs."""
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell = cell | {"outputs": outputs[number], "execution_count": number + 1}
            number += 1
        cells.append(cell)
    return notebook | {"cells": cells}


def as_markdown(notebook: dict[str, Any]) -> str:
    """The notebook as a page: text, code and what it printed."""
    parts = []
    for cell in notebook["cells"]:
        text = source(cell)
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            lines = output.get("text") or output["data"]["text/plain"]
            parts.append(f"```text\n{''.join(lines).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def main(files: list[Path]) -> None:
    for path in files or NOTEBOOKS:
        path = path.resolve()
        notebook = json.loads(path.read_text())
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                made = filled(notebook, run(notebook, path.name))
            finally:
                os.chdir(before)
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
