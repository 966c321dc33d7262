from lading.report.checkpoint.checkpoint import OpenedCheckpoint as OpenedCheckpoint, open_checkpoint as open_checkpoint
from lading.report.run import Run as Run, open_run as open_run
from lading.report.table import Table as Table
