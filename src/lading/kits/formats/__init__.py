"""Files that other projects write: MDS, Megatron, nanoGPT, read and converted."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.kits.formats.convert import StreamDocuments as StreamDocuments, store_tokens as store_tokens
    from lading.kits.formats.mds import MDSDataset as MDSDataset, MDSDocuments as MDSDocuments
    from lading.kits.formats.megatron import MegatronDocuments as MegatronDocuments, write_megatron as write_megatron

_HOMES = {
    "MDSDataset": "lading.kits.formats.mds",
    "MDSDocuments": "lading.kits.formats.mds",
    "MegatronDocuments": "lading.kits.formats.megatron",
    "StreamDocuments": "lading.kits.formats.convert",
    "store_tokens": "lading.kits.formats.convert",
    "write_megatron": "lading.kits.formats.megatron",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
