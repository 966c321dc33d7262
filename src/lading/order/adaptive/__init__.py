"""Orders that adapt while a run goes on: what a plan asks of them, and the kinds there are.

Adaptation     the plan's one question: which order, which events, what a state keeps (``protocol``)
curriculum     easy samples first
chosen         which chunk of the data comes next
sizes          how long chunks are
"""
