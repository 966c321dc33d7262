"""Policies: what decides while a run goes on, from what was seen and what was learnt."""
