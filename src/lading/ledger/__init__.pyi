from lading.ledger.ledger import Ledger as Ledger
from lading.ledger.run_folder import LEDGER_VERSION as LEDGER_VERSION
from lading.ledger.tracker.tracker import BatchTracker as BatchTracker
