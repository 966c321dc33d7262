from lading.order.chunked_sampler import ChunkedSampler as ChunkedSampler
from lading.order.clock import Clock as Clock, Location as Location
from lading.order.dataset import Part as Part, Parts as Parts, PlannedDataset as PlannedDataset
from lading.order.event import (
    Block as Block,
    Event as Event,
    Mask as Mask,
    Rebatch as Rebatch,
    ResumeBase as ResumeBase,
    Reweight as Reweight,
)
from lading.order.mixture.order import Mixed as Mixed
from lading.order.mixture.request import Mixture as Mixture
from lading.order.mixture.schedule import (
    Cosine as Cosine,
    Function as Function,
    Linear as Linear,
    Stages as Stages,
    Temperature as Temperature,
)
from lading.order.mixture.spec import MixtureSpec as MixtureSpec, integer_weights as integer_weights
from lading.order.permutation import ORDER_VERSION as ORDER_VERSION, Permutation as Permutation
from lading.order.plan import Plan as Plan
from lading.order.shuffle import Order as Order, Shuffled as Shuffled
from lading.order.simulation import Forecast as Forecast, Simulation as Simulation, forecast as forecast
