"""The documentation as a site: `make site` writes it to build/site.

Pages are those of docs/, with deploy/README.md and CHANGELOG.md. A link to a file of the project that is no page
becomes its name; one to a file, or a heading, that is not there ends the build. Zensical does search and HTML.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BUILD = ROOT / "build"
# Pages from elsewhere, and where they are on the site.
MORE = {ROOT / "deploy" / "README.md": "deploy.md", ROOT / "CHANGELOG.md": "changelog.md"}
PICTURES = {".png", ".svg"}
_LINK = re.compile(r"(?<!`)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A page: its file, and its place on the site."""

    file: Path
    place: Path


def pages() -> list[Page]:
    """All pages of the site."""
    found = [Page(path, path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*.md")) if path != DOCS / "README.md"]
    return [
        Page(DOCS / "README.md", Path("index.md")),
        *found,
        *(Page(path, Path(name)) for path, name in MORE.items()),
    ]


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of a page."""
    return {anchor(found) for found in _HEADING.findall(_FENCE.sub("", text))}


class Links:
    """Rewrites the links of pages for the site, and lists those that lead nowhere."""

    def __init__(self, known: list[Page]) -> None:
        self._places = {page.file: page.place for page in known}
        self._anchors = {page.file: anchors(page.file.read_text()) for page in known}
        self.broken: list[str] = []

    def rewrite(self, page: Page) -> str:
        """The text of a page with links as they are on the site."""
        parts = _FENCE.split(page.file.read_text())
        return "".join(part if part.startswith("```") else self._prose(page, part) for part in parts)

    def _prose(self, page: Page, text: str) -> str:
        return _LINK.sub(lambda found: self._link(page, found[1], found[2]), text)

    def _link(self, page: Page, text: str, target: str) -> str:
        if re.match(r"[a-z]+:", target):
            return f"[{text}]({target})"
        name, _, heading = target.partition("#")
        file = (page.file.parent / name).resolve() if name else page.file
        if not file.exists() or (heading and heading not in self._anchors.get(file, {heading})):
            self.broken.append(f"{page.file.relative_to(ROOT)}: {target}")
        if file not in self._places:
            picture = file.suffix in PICTURES and file.is_relative_to(DOCS)
            return f"[{text}]({file.relative_to(DOCS).as_posix()})" if picture else text
        up = "../" * (len(page.place.parts) - 1)
        return f"[{text}]({up}{self._places[file].as_posix()}{'#' + heading if heading else ''})"


def stage(folder: Path) -> list[str]:
    """Write the pages as the site has them; returns the links that lead nowhere."""
    shutil.rmtree(folder, ignore_errors=True)
    known = pages()
    links = Links(known)
    for page in known:
        place = folder / page.place
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(links.rewrite(page))
    for picture in [path for path in DOCS.rglob("*") if path.suffix in PICTURES]:
        place = folder / picture.relative_to(DOCS)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, place)
    return links.broken


def navigation() -> list[dict[str, list[str]]]:
    """The sections of docs/README.md, each with its pages; pages that no section names are under the last."""
    known = {page.file: page.place.as_posix() for page in pages()}
    left = {place: None for file, place in known.items() if file != DOCS / "README.md"}
    found = []
    for section in re.split(r"^## ", (DOCS / "README.md").read_text(), flags=re.MULTILINE)[1:]:
        files = [(DOCS / target.partition("#")[0]).resolve() for _, target in _LINK.findall(section)]
        places = [known[file] for file in files if file in known and known[file] in left]
        for place in places:
            left.pop(place, None)
        found.append({section.partition("\n")[0]: list(dict.fromkeys(places))})
    found.append({"More": list(left)})
    return found


def configuration() -> str:
    """The text of the configuration file of Zensical."""
    nav: list[Mapping[str, str | list[str]]] = [{"Home": "index.md"}, *navigation()]
    entries = ",\n  ".join(
        f"{{{json.dumps(name)} = {json.dumps(what)}}}" for each in nav for name, what in each.items()
    )
    return f"""[project]
site_name = "Odradek"
site_description = "An event-streaming platform in Python: Kafka's protocol, Kafka's files, and pipelines on Spark"
docs_dir = "pages"
site_dir = "html"
use_directory_urls = false
nav = [
  {entries}
]
[project.theme]
font = false
features = ["navigation.top", "search.highlight", "content.code.copy"]
"""


def main() -> int:
    folder = BUILD / "site"
    broken = stage(folder / "pages")
    if broken:
        print("These links lead nowhere:", *broken, sep="\n", file=sys.stderr)
        return 1
    (folder / "zensical.toml").write_text(configuration())
    zensical = Path(sys.argv[1]) / "zensical"
    command = [str(zensical), "build", "--strict", "--clean", "-f", "zensical.toml"]
    done = subprocess.run(command, cwd=folder)
    if done.returncode == 0:
        print(f"{(folder / 'html' / 'index.html').relative_to(ROOT)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
