from lading.loader.workers.child import ProcessSettings as ProcessSettings, Settings as Settings
from lading.loader.workers.processes import Workers as Workers
from lading.loader.workers.threads import ThreadWorkers as ThreadWorkers
