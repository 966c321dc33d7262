"""JASPER directories as training data: dataset, builder, loader and verbs (document 002)."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.kits.jasper.build.builder import (
        JASPERBuilder as JASPERBuilder,
        build_jasper_dataset as build_jasper_dataset,
    )
    from lading.kits.jasper.build.refresh import build_steering as build_steering, mine_negatives as mine_negatives
    from lading.kits.jasper.dataset import JASPERSteeringDataset as JASPERSteeringDataset
    from lading.kits.jasper.loader import (
        create_loader as create_loader,
        set_epoch as set_epoch,
        validate_first_batch as validate_first_batch,
    )

_HOMES = {
    "JASPERBuilder": "lading.kits.jasper.build.builder",
    "JASPERSteeringDataset": "lading.kits.jasper.dataset",
    "build_jasper_dataset": "lading.kits.jasper.build.builder",
    "build_steering": "lading.kits.jasper.build.refresh",
    "create_loader": "lading.kits.jasper.loader",
    "mine_negatives": "lading.kits.jasper.build.refresh",
    "set_epoch": "lading.kits.jasper.loader",
    "validate_first_batch": "lading.kits.jasper.loader",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
