"""What holds for every test: fixed threads, unwritten memory that shows, and reproducible examples in CI."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(2)

# Fills what torch.empty returns with NaN (integers with their largest value), so that reading unwritten memory shows.
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True

# .ci/run selects "ci": the same examples in every run. At a desk new examples are drawn each time.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("desk")
