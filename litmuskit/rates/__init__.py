"""Corrected rates with intervals that cover: numbers in, numbers out; no log needed.

============================================  ==========================================================================
known                                         default
============================================  ==========================================================================
one proportion                                `estimate_proportion`; `bound_proportion` for "at most"
tasks run several times                       `estimate_clustered`
flagged records nobody could judge            `bound_worst_case`; `estimate_pattern_mixture`, `find_tipping_point`
a random sample of the flagged was read       `estimate_confirmed`, `estimate_inflation`; `count_confirmed` for this run
samples of flagged and unflagged were read    `estimate_double_sampled`
control runs, and why they transport          `estimate_from_controls` (`_bayes`), `estimate_inflation_from_controls`
errors assumed                                `estimate_known_accuracy`, `tabulate_accuracy`
two arms, many arms                           `compare_paired`, `compare_rates`, `compare_groups`
the 2 % rule, planning                        `judge_quarantine`, `find_fire_probability`, `size_certificate`, `plan_sample`
whatever of these is known                    `estimate_rates`
============================================  ==========================================================================

``level`` is everywhere the confidence level, from 0.001 to 1 - 1e-6; `judge_quarantine` needs at least 0.5, for below that its
one-sided limits cross. Kernels over arrays stand in the modules (`intervals.wilson_limits`, `adjudicated.product_limits`, ...).
"""

from litmuskit.rates.adjudicated import count_confirmed, estimate_confirmed, estimate_double_sampled, estimate_inflation
from litmuskit.rates.bounds import bound_worst_case, estimate_pattern_mixture, find_tipping_point
from litmuskit.rates.choice import estimate_rates
from litmuskit.rates.clusters import FewClustersWarning, estimate_clustered
from litmuskit.rates.controls import (
    estimate_from_controls,
    estimate_from_controls_bayes,
    estimate_inflation_from_controls,
    estimate_known_accuracy,
    tabulate_accuracy,
)
from litmuskit.rates.differences import compare_groups, compare_paired, compare_rates
from litmuskit.rates.intervals import bound_proportion, estimate_proportion
from litmuskit.rates.planning import find_fire_probability, judge_quarantine, plan_sample, size_certificate
from litmuskit.rates.rate import Rate, RateTable
from litmuskit.rates.sampling import draw_sample, read_sample

__all__ = [
    "FewClustersWarning", "Rate", "RateTable", "bound_proportion", "bound_worst_case", "compare_groups", "compare_paired",
    "compare_rates", "count_confirmed", "draw_sample", "estimate_clustered", "estimate_confirmed", "estimate_double_sampled",
    "estimate_from_controls", "estimate_from_controls_bayes", "estimate_inflation", "estimate_inflation_from_controls",
    "estimate_known_accuracy", "estimate_pattern_mixture", "estimate_proportion", "estimate_rates", "find_fire_probability",
    "find_tipping_point", "judge_quarantine", "plan_sample", "read_sample", "size_certificate", "tabulate_accuracy",
]  # fmt: skip
