from lading.observe.stateful import import_stateful as import_stateful
from lading.observe.tracking import track as track
