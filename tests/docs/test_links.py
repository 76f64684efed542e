"""Links in pages that are read in the repository lead to files and headings; links of the site are checked there."""

import re

import pytest

from tests import ROOT
from tests.docs.markdown import PAGES, ROOT_PAGES, anchors, links, text_of

READ_IN_PLACE = [page for page in PAGES if page in ROOT_PAGES or page.startswith("papers/")]


@pytest.mark.parametrize("page", READ_IN_PLACE)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for link in links(page):
        target, _, anchor = link.partition("#")
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("papers/") or page == "CONTRIBUTING.md"])
def test_paths_in_the_repository_exist(page: str) -> None:
    named = re.findall(r"`((?:src|tests|docs)/[\w./]+|results/[\w.-]+)`", text_of(page))
    assert named
    named = [path for path in named if "longest_first" not in path]  # the example's, yet to be written
    assert [path for path in named if not any((base / path).exists() for base in (ROOT, (ROOT / page).parent))] == []
