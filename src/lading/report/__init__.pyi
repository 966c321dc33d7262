from lading.report.run import Run as Run, open_run as open_run
from lading.report.table import Table as Table
