from lading.loader.workers.processes import Workers as Workers
from lading.loader.workers.threads import ThreadWorkers as ThreadWorkers
