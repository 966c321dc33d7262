from lading.testing.contracts import OrderContract as OrderContract, SourceContract as SourceContract
from lading.testing.isolation import assert_isolated as assert_isolated
from lading.testing.resumable import assert_resumable as assert_resumable
