"""Names that everything else passes along: samples, bills, digests, fingerprints, worlds."""

from lading.identity.bill import Bill, Deviation, Place, SampleId
from lading.identity.hashing import digest, fingerprint, total_digest
from lading.identity.world import World, rank_of

__all__ = ["Bill", "Deviation", "Place", "SampleId", "World", "digest", "fingerprint", "rank_of", "total_digest"]
