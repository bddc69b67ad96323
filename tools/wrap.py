"""Wraps docstrings, comments and Markdown at 100 columns, where `tests/test_words.py` finds longer
lines; what it cannot wrap, it names: `python tools/wrap.py`. A docstring of one line that is too
long has to be made shorter, since the formatter joins it again.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from test_words import COLUMNS, long_lines_of_prose, long_lines_of_python, pages

ROOT = Path(__file__).parents[1]
ITEM = r"\s*(?:[-*] |\d+\. )"
END = ITEM + r"|\s*\||```|#|<!--"  # what a paragraph of Markdown does not reach into


def filled(text: str, first: str, rest: str) -> list[str]:
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ).split("\n")


def wrapped_prose(lines: list[str], at: int) -> list[str]:
    """With the paragraph or item around a line wrapped anew; code stays as it is."""
    if sum(line.startswith("```") for line in lines[:at]) % 2:
        return lines
    i = at
    while i and lines[i - 1].strip() and not re.match(ITEM, lines[i]):
        if re.match(END, lines[i - 1]) and not re.match(ITEM, lines[i - 1]):
            break
        i -= 1
    j = at + 1
    while j < len(lines) and lines[j].strip() and not re.match(END, lines[j]):
        j += 1
    first = (re.match(ITEM, lines[i]) or re.match(r" *", lines[i]))[0]
    text = " ".join(line.strip() for line in lines[i:j])[len(first.strip()) :].strip()
    return lines[:i] + filled(text, first, " " * len(first)) + lines[j:]


def wrapped_python(lines: list[str], at: int) -> list[str]:
    """With the comment or the paragraph of a docstring around a line wrapped anew."""
    line = lines[at]
    indent = re.match(r" *", line)[0]
    if re.match(r"\s*# .*-{5,}$", line):  # a heading
        return [*lines[:at], re.sub(r"-+$", "", line).ljust(COLUMNS, "-"), *lines[at + 1 :]]
    if line.strip().startswith("# "):
        return lines[:at] + filled(line.strip()[2:], f"{indent}# ", f"{indent}# ") + lines[at + 1 :]
    i = at
    while i and not re.match(r'\s*r?"""', lines[i]) and lines[i - 1].strip():
        i -= 1
    j, begins = i, bool(re.match(r'\s*r?"""', lines[i]))
    while (
        j + 1 < len(lines)
        and lines[j + 1].strip()
        and '"""' not in ends(lines[j], i == j and begins)
    ):
        j += 1
    text = " ".join(x.strip() for x in lines[i : j + 1])
    closes = '"""' in ends(lines[j], i == j and begins)
    if closes:
        text = text.removesuffix('"""').rstrip()
    new = filled(text, indent, indent) + ([f'{indent}"""'] if closes else [])
    return lines[:i] + new + lines[j + 1 :]


def ends(line: str, begins: bool) -> str:
    """The part of a line in which a docstring can end."""
    return line.split('"""', 1)[1] if begins else line


def main() -> None:
    code = [
        p
        for d in ("src", "tests", "bench", "tools", "examples")
        for p in (ROOT / d).rglob("*.py")
        if "build" not in p.parts
    ]
    for paths, find, wrap in (
        (pages(), long_lines_of_prose, wrapped_prose),
        (code, long_lines_of_python, wrapped_python),
    ):
        for path in paths:
            text, left = path.read_text(encoding="utf-8"), set()
            while todo := [n for n in find(text) if n not in left]:
                new = "\n".join(wrap(text.split("\n"), todo[0] - 1))
                try:
                    good = path.suffix == ".md" or ast.parse(new)
                except SyntaxError:
                    good = False
                if good and new != text and todo[0] not in find(new):
                    text = new
                else:
                    left.add(todo[0])
                    print(f"{path.relative_to(ROOT)}:{todo[0]}")
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
