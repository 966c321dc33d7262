from lading.train.lightning.ledger import LightningSink as LightningSink
from lading.train.loggers.logged import LoggedLedger as LoggedLedger, Sink as Sink, logged as logged
from lading.train.loggers.mlflow import MLflow as MLflow
from lading.train.loggers.tensorboard import TensorBoard as TensorBoard
from lading.train.loggers.wandb import WandB as WandB
