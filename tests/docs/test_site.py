"""The site is built without a warning, loads nothing from the network, and its reference is complete."""

import logging
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import penstock as ps
from penstock.model.telemetry import Record
from penstock.policies.registry import REGISTRY
from penstock.runtime.config import BY_PATH
from tests import ROOT
from tests.docs.markdown import PAGES

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """What an HTML page links to, loads and names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.add(given["href"])
        elif "src" in given:
            self.loaded.add(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning, such as a link that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mkdocs").addHandler(handler)
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=False))
    logging.getLogger("mkdocs").removeHandler(handler)
    assert not warnings
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_of_the_repository_is_on_the_site_or_the_readme(site: Path) -> None:
    shown = " ".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    for page in set(PAGES) - {"README.md"}:
        (title,) = re.findall(
            r"\A(?:---.*?---\n+)?# (.*?)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
        assert title in shown, page


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for target in page.loaded:
            assert not re.match(r"(?:\w+:)?//", target), f"{path.name}: {target}"
            assert path.name == "404.html" or (path.parent / unquote(target).partition("?")[0]).exists(), target
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_every_link_leads_to_a_page_and_an_anchor_that_exist(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute, for a server
            continue
        for link in page.links:
            if re.match(r"\w+:", link):
                continue
            target, _, anchor = unquote(link).partition("#")
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path.name}: {link}"
            assert not anchor or anchor in pages[file].names, f"{path.name}: {link}"


def test_the_reference_names_everything_that_there_is(site: Path, pages: dict[Path, Page]) -> None:
    found = {path.stem: path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html")}
    assert [name for table in REGISTRY.values() for name in table if f">{name}" not in found["policies"]] == []
    settings = [path.rpartition(".")[2] for path in BY_PATH]
    assert [name for name in settings if f"<code>{name}</code>" not in found["configuration"]] == []
    assert [name for name in Record.__struct_fields__ if f"<code>{name}</code>" not in found["telemetry"]] == []
    names = pages[site / "reference" / "python.html"].names
    assert [name for name in ps.__all__ if f"penstock-{name.lower()}" not in names] == []
    assert {"penstock-run", "penstock-runs-move", "penstock-cluster-admit"} <= pages[
        site / "reference" / "commands.html"
    ].names
