"""Reproduce the figures of a paper: all cases of all figures as one Spark job, then tables, pictures and claims.

A case that several figures share is run once. The random seed of a reproduction is added to the seeds of its cases,
which are part of the figures, so equal seeds give equal results wherever cases run.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.job import Progress, run_cases, unheard
from penstock.experiments.pictures import blank, write_picture
from penstock.model.decoding import decode_json
from penstock.model.errors import PenstockError, UnknownName, nearest
from penstock.model.files import read_text, write_whole

WORKS = {
    "potus": ("penstock.papers.potus",),
    "hone": ("penstock.papers.hone", "penstock.papers.hone.live"),
    "predictive": ("penstock.papers.predictive", "penstock.papers.predictive.live"),
    "sparcle": ("penstock.papers.sparcle", "penstock.papers.sparcle.live"),
    "tata": ("penstock.papers.tata", "penstock.papers.tata.live"),
}
"""The works that can be reproduced, and the modules of their figures; they are imported when they are needed."""

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
SIZE = (9.0, 5.0)  # of a picture in inches; a figure may change it
COLUMNS = ["figure", *(name for name in Claim._fields if name != "figure")]  # of claims.csv
WIDEST = 90  # characters of a measured value that the short table of claims shows

RESULT = pa.schema({"number": pa.int64(), "rows": pa.string(), "problem": pa.string()})


class FailedCase(PenstockError):
    """A case that failed."""


class Reproduced(NamedTuple):
    """The results, by figure."""

    tables: Mapping[str, pd.DataFrame]  # rows in the order of the cases, each with the values of its case
    claims: Sequence[Claim]
    cases: int  # number of different cases
    quick: bool = False  # cases are fewer and shorter, and must not be quoted


def reproduce(
    spark: SparkSession, figures: Sequence[Figure], quick: bool = False, seed: int = 0, on_progress: Progress = unheard
) -> Reproduced:
    """Run every case of some figures on Spark and check their claims."""
    work = [(figure, case) for figure in figures for case in seeded(figure.cases(quick), seed)]
    keys = [case_key(figure, case) for figure, case in work]
    order = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    runs = {key: figure.run for key, (figure, _) in zip(keys, work, strict=True)}
    texts = {key: msgspec.json.encode(dict(case)).decode() for key, (_, case) in zip(keys, work, strict=True)}
    frame = pd.DataFrame({"number": list(order.values()), "case": [texts[key] for key in order]})
    results = run_cases(spark, frame, _runner([runs[key] for key in order]), RESULT, on_progress).toPandas()
    rows = _rows(results)
    tables: dict[str, list[dict[str, Any]]] = {figure.number: [] for figure in figures}
    for key, (figure, case) in zip(keys, work, strict=True):
        tables[figure.number] += [{**case, **row} for row in rows[order[key]]]
    made = {number: pd.DataFrame(table) for number, table in tables.items()}
    return Reproduced(made, judge_claims(figures, made), len(order), quick)


def judge_claims(figures: Sequence[Figure], tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """Check the claims of figures against their rows; numpy's booleans become plain ones."""
    return [
        claim._replace(holds=bool(claim.holds), figure=figure.number)
        for figure in figures
        for claim in figure.claims(tables[figure.number])
    ]


def keep(folder: Path, figures: Sequence[Figure], found: Reproduced) -> list[Path]:
    """Write a table and a picture per figure, and all claims; claims of other figures in the folder are kept.

    Returns the files. Each is written atomically.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in figures:
        table = found.tables[figure.number]
        name = folder / f"figure-{figure.number}.csv"
        write_whole(name, table.to_csv(index=False, float_format="%.6g").encode())
        written += [name, _picture(folder / f"figure-{figure.number}.png", figure, table, found.quick)]
        (folder / f"figure-{figure.number}.partial.csv").unlink(missing_ok=True)  # of a live figure
    path = folder / "claims.csv"
    claims = _merged(path, figures, found.claims)
    write_whole(path, pd.DataFrame(claims, columns=list(Claim._fields))[COLUMNS].to_csv(index=False).encode())
    return [*written, path]


def read_claims(path: Path) -> list[Claim]:
    """Return the claims in a file written by `keep`; none if it does not exist."""
    if not path.exists():
        return []
    table = pd.read_csv(path, keep_default_na=False, dtype={name: str for name in Claim._fields if name != "holds"})
    return [Claim(**cast(dict[str, Any], row)) for row in table[COLUMNS].to_dict("records")]


def claims_table(claims: Sequence[Claim]) -> str:
    """Write claims in Markdown: a short table, and below it, folded, how each was judged and why it fails or holds.

    What an independent check found is not shown as the paper's word.
    """
    lines = [f"{sum(one.holds for one in claims)} of {len(claims)} claims hold.", ""]
    lines += ["| figure | claim | paper | ours | verdict |", "|---|---|---|---|---|"]
    for one in claims:
        paper = f"— (check: {one.paper})" if one.checked else one.paper
        cells = (one.figure, one.claim, paper, _shortened(one.ours), "✓" if one.holds else "✗")
        lines.append("| " + " | ".join(_inline(cell).replace("|", "\\|") for cell in cells) + " |")
    lines += ["", '<details markdown="1">', "<summary>How each claim was judged, and why it fails</summary>"]
    for figure, group in groupby(claims, lambda one: one.figure):
        lines += ["", f"**{'Figure ' if figure[0].isdigit() else ''}{figure}**", ""]
        lines += [_detail(one) for one in group]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _shortened(text: str) -> str:
    """Return a measured value for a narrow cell: a long one ends at its first part, the whole is in the details."""
    return text if len(text) <= WIDEST else re.split("[;,] ", text, maxsplit=1)[0] + " …"


def _inline(text: str) -> str:
    return text.replace("\n", " ").replace("*", "\\*").replace("_", "\\_")


def _detail(claim: Claim) -> str:
    """Return a list item: verdict, claim, the whole of a value that the table shortens, tolerance, reason."""
    parts = [f"measured: {claim.ours}"] if len(claim.ours) > WIDEST else []
    parts += [f"judged by: {claim.tolerance}"] + ([claim.why] if claim.why else [])
    return f"- {'✓' if claim.holds else '✗'} {_inline(claim.claim)}: {_inline('. '.join(parts))}."


def put_table(page: Path, table: str) -> bool:
    """Replace the text between the two markers of a page; return whether the page has them."""
    if not page.exists():
        return False
    text = read_text(page)
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        return False
    write_whole(page, f"{before}{BEGIN}\n\n{table}\n{END}{after}".encode())
    return True


def seeded(cases: Sequence[Case], seed: int) -> Iterator[Case]:
    """Yield cases with a seed added to their own."""
    for case in cases:
        yield {**case, "seed": int(case["seed"]) + seed} if seed and "seed" in case else case


def case_key(figure: Figure, case: Case) -> tuple[str, str, bytes]:
    """Return the identity of a case: the function that runs it, and its values."""
    return figure.run.__module__, figure.run.__qualname__, msgspec.json.encode(dict(case), order="sorted")


def _runner(
    runs: Sequence[Callable[[Case], Sequence[Row]]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a Spark task for its cases; our errors are results, other exceptions failures."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in batch.to_pylist():
                rows, problem = b"[]", None
                try:
                    made = runs[one["number"]](decode_json(one["case"]))
                    rows = msgspec.json.encode([dict(row) for row in made], enc_hook=lambda value: value.item())
                except PenstockError as error:
                    problem = str(error)
                row = {"number": one["number"], "rows": rows.decode(), "problem": problem}
                yield pa.RecordBatch.from_pylist([row], schema=RESULT)

    return run


def _rows(results: pd.DataFrame) -> dict[int, list[dict[str, Any]]]:
    failed = results[results["problem"].notna()]
    if len(failed):
        raise FailedCase(f"{len(failed)} of {len(results)} cases could not be run: {failed['problem'].iloc[0]}")
    return {number: decode_json(rows) for number, rows in zip(results["number"], results["rows"], strict=True)}


def _merged(path: Path, figures: Sequence[Figure], claims: Sequence[Claim]) -> list[Claim]:
    """Replace the claims of some figures in those of a file, and append new ones."""
    by_figure: dict[str, list[Claim]] = {}
    for old in read_claims(path):
        by_figure.setdefault(old.figure, []).append(old)
    by_figure |= {figure.number: [claim for claim in claims if claim.figure == figure.number] for figure in figures}
    return [claim for group in by_figure.values() for claim in group]


def _picture(path: Path, figure: Figure, table: pd.DataFrame, quick: bool) -> Path:
    picture = blank(*SIZE, layout="constrained")
    picture.suptitle(f"{figure.title} (a quick run, too short to be quoted)" if quick else figure.title, fontsize=10)
    figure.draw(table, picture)
    return write_picture(picture, path)


def figures_of(work: str) -> tuple[Figure, ...]:
    """Import the figures of a work."""
    if work not in WORKS:
        raise UnknownName("work", f"none is named {work!r}; {nearest(work, WORKS)}")
    return tuple(figure for module in WORKS[work] for figure in import_module(module).FIGURES)


def chosen(figures: Sequence[Figure], numbers: Sequence[str]) -> tuple[Figure, ...]:
    """Return the figures with some numbers, all if none is given; 5 includes 5a, 5b and so on."""
    picked: list[Figure] = []
    for number in numbers:
        found = [figure for figure in figures if number in (figure.number, re.sub(r"(?<=\d)[a-z]$", "", figure.number))]
        if not found:
            known = ", ".join(figure.number for figure in figures)
            raise UnknownName("figure", f"none is numbered {number!r}; there are {known}")
        picked += [figure for figure in found if figure not in picked]
    return tuple(picked) if numbers else tuple(figures)
