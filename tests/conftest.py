"""Profiles for every test: few, repeatable Hypothesis examples unless more are asked for."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    max_examples=30,  # every change of mutants.toml is caught by these
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("brief", parent=settings.get_profile("quick"), max_examples=8)
settings.register_profile("more", parent=settings.get_profile("quick"), max_examples=50)
settings.register_profile("long", parent=settings.get_profile("quick"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
