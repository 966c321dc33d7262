"""TensorBoard event files, written without torch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter


class TensorBoard:
    """A sink that writes event files into a folder, where TensorBoard looks for them."""

    def __init__(self, folder: str | Path) -> None:
        self._writer = EventFileWriter(str(folder))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def facts(self, facts: Mapping[str, str]) -> None:
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        values = [
            Summary.Value(tag=tag, metadata=metadata, tensor=TensorProto(dtype=DT_STRING, string_val=[text.encode()]))
            for tag, text in facts.items()
        ]
        self._writer.add_event(Event(wall_time=time.time(), step=0, summary=Summary(value=values)))

    def close(self, run: Path) -> None:
        """Write everything down. TensorBoard keeps no artifacts: the folder of the run is among the facts."""
        self._writer.close()
