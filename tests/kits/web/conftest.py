"""The run with a roll-back that the questions are asked of, for its pages."""

from tests.report.conftest import rolled_back

__all__ = ["rolled_back"]
