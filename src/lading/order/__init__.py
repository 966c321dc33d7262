"""Which sample comes when: pure functions of a plan and a position, arithmetic on NumPy."""

from typing import TYPE_CHECKING

from lading.order.chunked_sampler import ChunkedSampler
from lading.order.clock import Clock, Location
from lading.order.dataset import Part, PlannedDataset
from lading.order.event import Block, Choose, Event, Rebatch, Rescore, ResumeBase, Reweight
from lading.order.parts import Parts
from lading.order.permutation import ORDER_VERSION, Permutation
from lading.order.plan import Plan
from lading.order.shuffle import Order, Shuffled
from lading.order.simulation import Simulation
from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.order.curriculum.request import Curriculum as Curriculum
    from lading.order.mixture.order import Mixed as Mixed
    from lading.order.mixture.request import Mixture as Mixture
    from lading.order.mixture.schedule import (
        Cosine as Cosine,
        Function as Function,
        Linear as Linear,
        Stages as Stages,
        Temperature as Temperature,
    )
    from lading.order.mixture.spec import MixtureSpec as MixtureSpec
    from lading.order.mixture.weights import integer_weights as integer_weights
    from lading.order.simulation import Forecast as Forecast, forecast as forecast

__all__ = [
    "ORDER_VERSION",
    "Block",
    "Choose",
    "ChunkedSampler",
    "Clock",
    "Event",
    "Location",
    "Order",
    "Part",
    "Parts",
    "Permutation",
    "Plan",
    "PlannedDataset",
    "Rebatch",
    "Rescore",
    "ResumeBase",
    "Reweight",
    "Shuffled",
    "Simulation",
]

# Mixtures: opened by those who mix.
_HOMES = {
    "Cosine": "lading.order.mixture.schedule",
    "Curriculum": "lading.order.curriculum.request",
    "Forecast": "lading.order.simulation",
    "Function": "lading.order.mixture.schedule",
    "Linear": "lading.order.mixture.schedule",
    "Mixed": "lading.order.mixture.order",
    "Mixture": "lading.order.mixture.request",
    "MixtureSpec": "lading.order.mixture.spec",
    "Stages": "lading.order.mixture.schedule",
    "Temperature": "lading.order.mixture.schedule",
    "forecast": "lading.order.simulation",
    "integer_weights": "lading.order.mixture.weights",
}

__all__ += list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
