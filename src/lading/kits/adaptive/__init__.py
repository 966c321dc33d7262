"""Training that adapts while it goes on: curricula, chosen and resized chunks, policies.

curriculum           easy samples first: what the user asks for
levels, graded       what a plan keeps of a curriculum; its order and its events
chosen               which chunk of the data comes next
runner               a loader's side of chunks: ask the policies where one ends, and make events of their answers
policy/              the policies there are: of weights, of the sizes of chunks, of their choice

What a plan and a loader ask of all this is core: ``lading.order.adaptation``, ``lading.loader.adapting``,
``lading.loader.policy``.
"""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
