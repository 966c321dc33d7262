"""Which sample comes when: pure functions of a plan and a position, arithmetic on NumPy."""

from lading.identity.lazy import lazy_names
from lading.order.chunked_sampler import ChunkedSampler
from lading.order.clock import Clock, Location
from lading.order.dataset import Dataset
from lading.order.event import Block, Event, Rebatch, Reweight
from lading.order.permutation import ORDER_VERSION, Permutation
from lading.order.plan import Plan
from lading.order.shuffle import Order, Shuffled
from lading.order.simulation import Simulation

__all__ = [
    "ORDER_VERSION",
    "Block",
    "ChunkedSampler",
    "Clock",
    "Dataset",
    "Event",
    "Location",
    "Order",
    "Permutation",
    "Plan",
    "Rebatch",
    "Reweight",
    "Shuffled",
    "Simulation",
]

# Mixtures: opened by those who mix.
_HOMES = {
    "Cosine": "lading.order.schedule",
    "Forecast": "lading.order.forecasting",
    "Function": "lading.order.schedule",
    "Linear": "lading.order.schedule",
    "Mixed": "lading.order.mixed",
    "MixtureRequest": "lading.order.mixture",
    "MixtureSpec": "lading.order.mixture_spec",
    "Stages": "lading.order.schedule",
    "Temperature": "lading.order.schedule",
    "forecast": "lading.order.forecasting",
    "integer_weights": "lading.order.weights",
}

__all__ += list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
