"""SPARCLE's figures, and some of our own on what the paper leaves open; one file per figure or pair of figures.

`faces` 6, `optima` 8, `energies` 9, `paths` 10, `rates` 11 and 12, `sharing` 13 and 14, `ratios`, `refinement`,
`networks`. `runs` runs several policies on one random instance, `summaries` has statistics and plots.
"""

from penstock.experiments.figure import Figure
from penstock.papers.sparcle import energies, faces, networks, optima, paths, rates, ratios, refinement, sharing

FIGURES: tuple[Figure, ...] = (
    *faces.FIGURES,
    *optima.FIGURES,
    *energies.FIGURES,
    *paths.FIGURES,
    *rates.FIGURES,
    *sharing.FIGURES,
    *ratios.FIGURES,
    *refinement.FIGURES,
    *networks.FIGURES,
)
