"""The gate beside two packages that evolve programs, on one problem whose scores are noisy."""
