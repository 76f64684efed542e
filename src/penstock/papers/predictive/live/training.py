"""Train latency models for an application that will run live: exploration on the twin, pipeline, training on Spark.

Nothing is measured live for it. Emulated machines charge the declared costs of components, so the twin with declared
costs matches the run; live, the same training data would take an hour of random placements.
"""

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from penstock.estimate.latency_models import save_models
from penstock.exploration.twin_exploration import explore_twin
from penstock.model.errors import InvalidInput
from penstock.papers.predictive.live.settings import Setting
from penstock.papers.predictive.live.visits import Tell
from penstock.pipeline.job import run_pipeline
from penstock.pipeline.training import train_latency

HOLD_S, SETTLE_S = 30.0, 5.0  # of virtual time; a placement is held for a window
FACTORS = (0.8, 1.2)  # range of a placement's load relative to the load
FOLLOWED_TPS = 2.0  # traced source tuples per second, per task


class Learnt(NamedTuple):
    """A file of models, and their accuracy on held-out placements."""

    path: Path
    accuracy: float  # mean over components and streams, cross-validated


def learn(spark: SparkSession, setting: Setting, folder: Path, placements: int, seed: int, tell: Tell) -> Learnt:
    """Explore a number of placements on the twin, and train models on them."""
    records, tables, models = folder / "explored", folder / "tables", folder / "models.npz"
    records.mkdir(parents=True)
    tell(f"exploring {placements} placements in the twin")
    explored = explore_twin(
        setting.application, setting.cluster, records, placements=placements, hold_s=HOLD_S, settle_s=SETTLE_S,
        window_s=HOLD_S, factors=FACTORS, sample_tps=FOLLOWED_TPS, seed=seed,
    )  # fmt: skip
    if explored.stopped:  # models trained on fewer placements are not accepted
        problem = f"{len(explored.runs)} of {placements} were tried: {explored.stopped}"
        raise InvalidInput("placements", f"{problem}; run it again")
    tell("through the pipeline")
    run_pipeline(spark, records, tables, window_s=HOLD_S)
    tell("training")
    trained = train_latency(spark, tables, kind="svr", application=setting.name, seed=seed)
    save_models(trained.models, models)
    known = [one.accuracy for one in trained.trained if one.accuracy is not None]
    return Learnt(models, sum(known) / len(known) if known else float("nan"))
