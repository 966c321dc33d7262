from lading.kits.deepspeed.arguments import DsTrainingArguments as DsTrainingArguments
from lading.kits.deepspeed.callback import DsCallback as DsCallback, DsCallbackHandler as DsCallbackHandler
from lading.kits.deepspeed.trainer import DsTrainer as DsTrainer
