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
