"""What holds for every test: properties have no time limit, a busy machine fails nothing."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("gpuward", deadline=None)
settings.load_profile("gpuward")
