from lading.testing.contracts import (
    OrderContract as OrderContract,
    SourceContract as SourceContract,
    assert_resumable as assert_resumable,
)
from lading.testing.isolation import assert_isolated as assert_isolated
from lading.testing.witnessing import (
    Witness as Witness,
    WitnessDifference as WitnessDifference,
    compare_witness as compare_witness,
    trained_batches as trained_batches,
    witness as witness,
)
