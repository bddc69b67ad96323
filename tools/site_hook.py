"""A hook of mkdocs: files outside docs/ that pages link to (benchmarks, results, examples, sources)
become part of the site, and notebooks become pages.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
NOTEBOOK = re.compile(r"\]\((notebooks/\w+)\.ipynb\)")
LINK = re.compile(r"\[([^\]]*)\]\(\.\./([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Adds what is linked: a Markdown file as a page, another file as it is."""
    pending = [Path(file.abs_src_path) for file in files.documentation_pages()]
    while pending:
        page = pending.pop()
        for _, target in LINK.findall(page.read_text()):
            path = (page.parent / ".." / target).resolve()
            uri = path.relative_to(ROOT).as_posix()
            if path.is_dir() or files.get_file_from_path(uri):
                continue
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    for uri in [file.src_uri for file in files if file.src_uri.startswith("notebooks/")]:
        files.append(
            File.generated(
                config, uri.replace(".ipynb", ".md"), content=_page_of(Path(config.docs_dir, uri))
            )
        )
    return files


def _page_of(notebook: Path) -> str:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text: str = tool.as_markdown(json.loads(notebook.read_text()))
    return f"{text}\n[This page as a notebook]({notebook.name})\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """In docs/, `../bench/README.md` is a path of the repository; in the site, docs/ is the root.
    There are no folders to look at: their links go to the text about benchmarks. Notebooks are
    read as pages.
    """

    if page.file.src_uri.startswith("notebooks/"):
        return markdown
    markdown = NOTEBOOK.sub(r"](\1.md)", markdown)

    def moved(match: re.Match[str]) -> str:
        target = "bench/README.md" if (ROOT / match[2]).is_dir() else match[2]
        return f"[{match[1]}]({target}"

    return LINK.sub(moved, markdown)
