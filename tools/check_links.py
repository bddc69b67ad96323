"""Every link inside the built site leads to a file, and to a place in it; nothing is loaded from
the network: `check_links.py build/site`.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links, the loaded files and the named places of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places.update(name for name in (found.get("id"), found.get("name")) if name)
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        loaded = (
            found.get("href")
            if tag == "link" and found.get("rel") not in ("canonical", "next", "prev")
            else found.get("src")
        )
        if loaded:
            self.loaded.append(loaded)


def faults(site: Path) -> list[str]:
    pages = {path: Page(path.read_text(errors="replace")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    found.append(f"{where} loads {link} from the network")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.path.startswith("/"):
                target = site.resolve() / unquote(parts.path).lstrip("/")
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{where} links to {link}, which is not there")
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].places | {"__top"}
            ):
                found.append(f"{where} links to {link}, but there is no such place on that page")
    return found


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve()
    found = faults(site)
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"{len(list(site.rglob('*.html')))} pages, {len(found)} broken links")
    sys.exit(bool(found))
