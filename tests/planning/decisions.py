"""Print what policies decide for random applications on all kinds of networks: `python -m tests.planning.decisions`."""

import sys

from benchmarks.saturation import case

from penstock.planning.planner import Planner
from penstock.policies.registry import PolicyKind, names

# They score thousands of placements, compiled in any case, and may stop by the clock.
SEARCHES = ("local-search", "neural-search", "optimal", "predictive-search")


def main() -> None:
    """Print a line per decision, for the seeds in the command line."""
    for seed in map(int, sys.argv[1:]):
        evaluator = case(seed).evaluator
        planner = Planner(evaluator.topology, evaluator.cluster)
        for policy in names(PolicyKind.PLACEMENT):
            if policy not in SEARCHES:
                decision = planner.decide(policy)
                print(seed, policy, decision.result, decision.evaluation)


if __name__ == "__main__":
    main()
