"""The policies there are: of weights, of the sizes of chunks, of their choice.

What every policy is, and what it is given: ``lading.loader.policy``.
"""
