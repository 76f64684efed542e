"""The hook of mkdocs: adds the generated pages, and the pages that are kept outside docs/, to the site.

A page that is kept elsewhere, such as ARCHITECTURE.md, has links that are right there. They are rewritten: to the page
of the site where there is one, to plain text where the target is no part of the site.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

import reference
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAPERS = ("potus", "hone", "predictive", "sparcle", "tata")
INCLUDED = {  # page of the site -> where it is kept
    "explanations/architecture.md": "ARCHITECTURE.md",
    "guides/contributing.md": "CONTRIBUTING.md",
    "guides/examples.md": "examples/README.md",
    "explanations/benchmarks.md": "benchmarks/README.md",
    **{f"papers/{name}.md": f"papers/{name}/README.md" for name in PAPERS},
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add what is generated and what is kept elsewhere."""
    for page, write in reference.PAGES.items():
        files.append(File.generated(config, page, content=write()))
    for page, kept in INCLUDED.items():
        files.append(File.generated(config, page, content=included(page, kept)))
    for name in PAPERS:
        for picture in sorted((ROOT / "papers" / name / "results").glob("*.png")):
            path = f"papers/{name}/results/{picture.name}"
            files.append(File.generated(config, path, abs_src_path=str(picture)))
    return files


def included(page: str, kept: str) -> str:
    """Return a page that is kept elsewhere, its links as they must be on the site."""
    folder = posixpath.dirname(kept)

    def rewritten(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return found[0]
        where = posixpath.normpath(posixpath.join(folder, path))
        on_site = site_path(where)
        if on_site is None:
            return text
        link = posixpath.relpath(on_site, posixpath.dirname(page))
        return f"{picture}[{text}]({link}{'#' + anchor if anchor else ''})"

    return LINK.sub(rewritten, (ROOT / kept).read_text())


def site_path(path: str) -> str | None:
    """Return the page or file of the site that shows a file of the repository; None if there is none."""
    pages = {kept: page for page, kept in INCLUDED.items()}
    kept = path if path in pages else f"{path}/README.md"
    if kept in pages:
        return pages[kept]
    if path == "README.md":
        return "index.md"
    parts = PurePosixPath(path).parts
    if parts[:1] == ("docs",) and (ROOT / path).is_file():
        return posixpath.join(*parts[1:])
    return path if parts[:1] == ("papers",) and path.endswith(".png") else None
