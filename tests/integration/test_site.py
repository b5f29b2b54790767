"""`make site`: links lead somewhere, every page has its place, figures are those of their script."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.clients.pictures import MAX_BYTES
from tools import figures, site_pages

ZENSICAL = site_pages.ROOT / ".cache" / "site" / "bin"
SVG = "{http://www.w3.org/2000/svg}"


def test_no_link_of_the_site_leads_nowhere(tmp_path: Path) -> None:
    assert site_pages.stage(tmp_path / "pages") == []
    text = (tmp_path / "pages" / "deploy.md").read_text()
    assert "(operations.md#growing)" in text and "(figures/kubernetes.svg)" in text
    assert (tmp_path / "pages" / "figures" / "kubernetes.svg").exists()


def test_a_link_that_leads_nowhere_is_found() -> None:
    page = site_pages.Page(site_pages.DOCS / "groups.md", Path("groups.md"))
    links = site_pages.Links([page])
    for target in ("no-such.md", "groups.md#no-such-heading", "#no-such-heading"):
        links._link(page, "words", target)
    assert len(links.broken) == 3
    links._link(page, "words", "#limits")
    assert links._link(page, "words", "../Makefile") == "words"
    assert len(links.broken) == 3


def test_every_page_is_in_the_navigation_once() -> None:
    placed = [place for section in site_pages.navigation() for places in section.values() for place in places]
    assert sorted(["index.md", *placed]) == sorted(page.place.as_posix() for page in site_pages.pages())


def test_figures_are_those_of_their_script() -> None:
    drawn = {f"{name}.svg": draw().svg() for name, draw in figures.FIGURE.items()}
    assert len(drawn) >= 10
    kept = {path.name: path.read_text() for path in figures.FIGURES.iterdir()}
    assert kept == drawn, "run `make docs`"
    shown = "".join(page.file.read_text() for page in site_pages.pages())
    for name, text in drawn.items():
        assert f"figures/{name})" in shown, name
        root = ElementTree.fromstring(text)
        assert root.find(f"{SVG}title") is not None
        width, height = int(root.attrib["width"]), int(root.attrib["height"])
        for box in root.iter(f"{SVG}rect"):
            right = float(box.get("x", "0")) + float(box.attrib["width"])
            assert right <= width and float(box.get("y", "0")) + float(box.attrib["height"]) <= height, name


def test_pictures_are_shown_and_small() -> None:
    kept = list((site_pages.DOCS / "pictures").iterdir())
    assert len(kept) >= 5
    shown = (site_pages.DOCS / "console.md").read_text()
    for picture in kept:
        assert f"pictures/{picture.name})" in shown, picture.name
        assert picture.stat().st_size <= MAX_BYTES, picture.name


@pytest.mark.slow
def test_the_site_is_built() -> None:
    if not (ZENSICAL / "zensical").exists():
        pytest.skip("Zensical is not here: `make site` installs it")
    command = [sys.executable, "-m", "tools.site_pages", str(ZENSICAL)]
    done = subprocess.run(command, cwd=site_pages.ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    html = site_pages.BUILD / "site" / "html"
    assert "Zookeeper".lower() in (html / "cluster.html").read_text().lower()
    assert (html / "search.json").stat().st_size > 100_000
    # Nothing is fetched from elsewhere when it is read.
    assert not re.findall(r'(?:src|<link[^>]*href)="https?:', (html / "index.html").read_text())
