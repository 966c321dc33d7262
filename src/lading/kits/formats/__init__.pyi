from lading.kits.formats.convert import StreamDocuments as StreamDocuments, store_tokens as store_tokens
from lading.kits.formats.mds import MDSDataset as MDSDataset, MDSDocuments as MDSDocuments
from lading.kits.formats.megatron import MegatronDocuments as MegatronDocuments, write_megatron as write_megatron
