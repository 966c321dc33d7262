"""Orders that adapt while a run goes on: what a plan asks of them, and the kinds there are.

protocol       the plan's one question: which order, which events, what a state keeps; how long chunks are
decided        what is decided while a run goes on, and where each kind is
curriculum     easy samples first: what the user asks for, what a plan keeps of it
graded         its order and its events
chosen         which chunk of the data comes next
"""
