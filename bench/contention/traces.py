"""When requests arrive, in seconds from the start: constant, Poisson and bursts. Pure; the same seed gives the same trace."""

from __future__ import annotations

import numpy as np

from bench.http_infer import Array

SEED = 6


def constant(rate_per_s: float, duration_s: float) -> Array:
    """Return evenly spaced arrivals."""
    return np.arange(round(rate_per_s * duration_s)) / rate_per_s


def poisson(rate_per_s: float, duration_s: float) -> Array:
    """Return arrivals with independent gaps of an exponential distribution, as many clients make them."""
    gaps = np.random.default_rng(SEED).exponential(1 / rate_per_s, round(2 * rate_per_s * duration_s) + 100)
    arrivals: Array = np.cumsum(gaps)
    return arrivals[arrivals < duration_s]


def bursts(rate_per_s: float, duration_s: float, size: int = 16) -> Array:
    """Return bursts of `size` arrivals at one moment, evenly spaced, `rate_per_s` on average."""
    starts = constant(rate_per_s / size, duration_s)
    return np.repeat(starts, size)
