"""`penstock lab sweep`: compare policies on many clusters and seeds, as a Spark job."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from penstock.cli import inputs
from penstock.cli.flows import find_application
from penstock.cli.output import console, duration, policy_cell, print_json, print_line, table
from penstock.cli.plots import plot_sweep
from penstock.cli.progress import tracking
from penstock.experiments.sweep import Case, ratios, summary, sweep_cases
from penstock.experiments.sweep import sweep as run_sweep
from penstock.model.cluster import Cluster
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.formats.tata import validation_pairs
from penstock.model.topology import Application
from penstock.pipeline.session import session
from penstock.runtime.storage.run_folder import refuse_unwritable
from penstock.workloads.clusters import find_cluster

Instances = list[tuple[Application, Cluster, int]]


MEASURES = {"throughput": "throughput_tps", "delay": "delay_ms", "traffic": "traffic_bytes"}
CLUSTERS = [f"hetero:machines={machines},seed={{seed}}" for machines in (4, 8, 16)]

ApplicationArgument = Annotated[
    str | None, typer.Argument(help="A file or a built-in name.", autocompletion=inputs.application_names)
]
ClusterOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A file or a built-in name in which {seed} is the seed; repeatable.", autocompletion=inputs.cluster_names
    ),
]
SeedsOption = Annotated[int, typer.Option(help="Number of seeds: 0, 1, …", min=1)]
BaselineOption = Annotated[
    str, typer.Option(help="Policy that ratios are relative to.", autocompletion=inputs.policy_names)
]
TataOption = Annotated[
    Path | None, typer.Option(help="Folder of the TATA data set, instead of APPLICATION and --cluster.")
]
PairsOption = Annotated[int, typer.Option(help="Slot graphs per validation task graph of --tata.", min=1)]
OutputOption = Annotated[Path | None, typer.Option(help="New folder for results and picture.")]


def sweep(
    application: ApplicationArgument = None,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    cluster: ClusterOption = None,
    policy: inputs.PoliciesOption = None,
    objective: inputs.ObjectiveOption = "throughput",
    seeds: SeedsOption = 5,
    baseline: BaselineOption = "round-robin",
    tata: TataOption = None,
    pairs: PairsOption = 5,
    master: inputs.MasterOption = None,
    output: OutputOption = None,
    as_json: inputs.JsonOption = False,
) -> None:
    """Compare policies on many clusters and seeds.

    A Spark job runs policies × clusters × seeds: each case is one policy's placement of the application on one cluster.
    It prints mean and spread of the ratios to the baseline on the same cluster and seed. --output keeps all cases
    (Parquet), the summary (CSV) and a picture.

    Example: penstock lab sweep word-count --cluster li-10 --cluster tata-3 --policy all --policy optimal:seconds=2
    """
    names = list(dict.fromkeys([*inputs.chosen_policies([baseline]), *inputs.chosen_policies(policy or ["all"])]))
    if (application is None) == (tata is None):
        raise InvalidInput("application", "expected an application or --tata, one of the two; name one")
    chosen = inputs.chosen_parameters(parameter, parameters)
    if tata is None:
        wanted = find_application(str(application), chosen)
        instances = [
            (wanted, find_cluster(text.replace("{seed}", str(seed))), seed)
            for text in cluster or CLUSTERS
            for seed in range(seeds)
        ]
    elif chosen:
        raise InvalidInput("set", f"expected none with --tata, got {next(iter(chosen))!r}; leave it out")
    else:
        instances = validation_pairs(tata, pairs)
    model = "tata" if tata else "planning"
    work = sweep_cases(instances, names, inputs.chosen_objective(objective), model)
    title = "TATA validation pairs" if tata else str(application)
    folder = _folder(output, "tata" if tata else Path(str(application)).stem)
    compared, summed = _run(work, master, baseline, quiet=as_json)
    _keep(folder, compared, summed, baseline, title)
    order = {name: number for number, name in enumerate(names)}
    summed = summed.sort_values("policy", key=lambda column: column.map(order))
    if as_json:
        print_json({"baseline": baseline, "instances": len(instances), "policies": summed.to_dict("records")})
    else:
        _print(summed, baseline, f"{title}: {len(instances)} instances", objective)
        _print_notes(compared)
        _print_refusals(compared)
        _print_files(folder)
    if not compared["placed"].any():
        raise typer.Exit(1)


def _folder(output: Path | None, name: str) -> Path:
    """Return the folder of the results; reject one that is not empty or not writable before any work is done."""
    folder = output or Path("results") / f"sweep-{name}-{datetime.now():%Y%m%d-%H%M%S}"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileProblem(f"{folder}: is there already and not empty; choose another --output")
    refuse_unwritable(folder, "--output")
    return folder


def _run(work: list[Case], master: str | None, baseline: str, quiet: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    with tracking("starting Spark", quiet) as show, session("sweep", master) as spark:
        doing = f"sweeping {len(work)} cases on {spark.sparkContext.master}"
        compared = ratios(run_sweep(spark, work, lambda done, total: show(done, total, doing)), baseline)
        return compared.toPandas(), summary(compared).toPandas()


def _keep(folder: Path, compared: pd.DataFrame, summed: pd.DataFrame, baseline: str, title: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    compared.sort_values(["instance", "policy"]).to_parquet(folder / "cases.parquet", index=False)
    summed.to_csv(folder / "summary.csv", index=False)
    plot_sweep(compared, baseline, title, folder / "sweep.png")


def _print(summed: pd.DataFrame, baseline: str, title: str, objective: str) -> None:
    console.print(f"[bold]{title}, mean ± standard deviation relative to {baseline}[/]\n")
    scored = objective == "balanced"
    rows = table("policy", *MEASURES, *(["reward"] if scored else []), "decided in")
    judged = summed["score"] if scored else summed[f"{MEASURES[objective]}_ratio"]
    best = judged.idxmin() if objective in ("delay", "traffic") else judged.idxmax()
    for position, row in summed.iterrows():
        top = position == best
        rows.add_row(
            policy_cell(row["policy"], top),
            *(_spread(row, measure) for measure in MEASURES.values()),
            *([f"{row['score']:+.3f} ±{row['score_sd']:.3f}"] if scored else []),
            duration(row["seconds"]) if row["seconds"] == row["seconds"] else "-",
        )
    console.print(rows)


def _print_notes(compared: pd.DataFrame) -> None:
    """Print the notes that a policy attaches to most of its placements."""
    for policy, notes in compared[compared["note"].fillna("") != ""].groupby("policy", sort=False)["note"]:
        if (notes == notes.mode().iloc[0]).mean() > 0.5:
            text = f"{policy}, mostly: {notes.mode().iloc[0]}"
            print_line(text, "dim")


def _print_refusals(compared: pd.DataFrame) -> None:
    """Print the policies that left instances unplaced, and the most frequent constraint."""
    refused = compared[~compared["placed"]]
    total = compared["instance"].nunique()
    for policy, rows in refused.groupby("policy", sort=False):
        mostly = rows["constraint"].mode().iloc[0]
        reason = rows.loc[rows["constraint"] == mostly, "reason"].iloc[0]
        console.print(f"{policy}: {len(rows)} of {total} not placed, mostly for {mostly}:", style="dim", markup=False)
        print_line(f"  such as: {reason}", "dim")


def _print_files(folder: Path) -> None:
    console.print(f"\ncases    {folder / 'cases.parquet'}\nsummary  {folder / 'summary.csv'}", soft_wrap=True)
    console.print(f"picture  {folder / 'sweep.png'}", soft_wrap=True)


def _spread(row: "pd.Series[float]", measure: str) -> str:
    mean, deviation = row[f"{measure}_ratio"], row[f"{measure}_ratio_sd"]
    if mean != mean:
        return "-"
    return f"{mean:.2f}" if deviation != deviation else f"{mean:.2f} ±{deviation:.2f}"
