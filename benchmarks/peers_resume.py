"""Milliseconds to the first batch of mosaicml-streaming and litdata, for ``bench_resume``; runs in ``.venv-mds``.

python benchmarks/peers_resume.py FOLDER BATCH LATER

Both read files of their own, which are written once to the folder. Prints one JSON object: milliseconds by library,
at batch 0 and at a later one. Only what starts from a saved state is timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = 3


def ms(first_batch: Callable[[], Any]) -> float:
    """Return the milliseconds of a call, the median of some."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        first_batch()
        times.append((time.perf_counter() - start) * 1e3)
    return median(times)


def of_streaming(folder: Path, batch: int, later: int) -> list[float]:
    """Return the times of StreamingDataset with StreamingDataLoader."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.kits.formats.mds_writer import StandIns  # streaming imports what is not installed and not needed

    sys.meta_path.append(StandIns())
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    with MDSWriter(out=str(folder / "mds"), columns={"x": "int"}) as writer:
        for number in range(batch * (later + 1)):
            writer.write({"x": number})

    def loader() -> Any:
        dataset = StreamingDataset(local=str(folder / "mds"), shuffle=True, batch_size=batch)
        return StreamingDataLoader(dataset, batch_size=batch)

    begun = loader()
    next(iter(begun))
    state = begun.state_dict()
    del begun
    found = []
    for step in (0, later):
        clean_stale_shared_memory()

        def first_batch(step: int = step) -> None:
            resumed = loader()
            resumed.load_state_dict({**state, "sample_in_epoch": step * batch})
            next(iter(resumed))

        found.append(ms(first_batch))
    return found


def _number(index: int) -> dict[str, int]:
    return {"x": index}


def of_litdata(folder: Path, batch: int, later: int) -> list[float]:
    """Return the times of litdata's StreamingDataset with its StreamingDataLoader."""
    import litdata

    count, out = batch * (later + 1), str(folder / "lit")
    litdata.optimize(_number, list(range(count)), out, chunk_bytes="16MB", num_workers=1)

    def loader() -> Any:
        return litdata.StreamingDataLoader(litdata.StreamingDataset(out, shuffle=True), batch_size=batch, num_workers=0)

    begun = loader()
    iterator = iter(begun)
    next(iterator), next(iterator)
    state = begun.state_dict()
    found = []
    for step in (0, later):

        def first_batch(step: int = step) -> None:
            resumed = loader()
            if step:
                resumed.load_state_dict(_moved(state, step, batch))
            next(iter(resumed))

        found.append(ms(first_batch))
    return found


def _moved(state: Any, step: int, batch: int) -> Any:
    """Return a state of litdata's at another step."""
    places = {"num_samples_yielded": step * batch, "num_batches_yielded": step}
    if not isinstance(state, dict):
        return state
    moved = {name: places.get(name, _moved(value, step, batch)) for name, value in state.items()}
    if isinstance(state.get("num_samples_yielded"), dict):
        moved["num_samples_yielded"] = dict.fromkeys(state["num_samples_yielded"], step * batch)
    return moved


def main() -> None:
    """Measure each library; the text of the error for one that fails."""
    folder, batch, later = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    out, results = os.dup(1), dict[str, list[float] | str]()
    os.dup2(2, 1)  # libraries print
    for name, measure in {"mosaicml-streaming": of_streaming, "litdata": of_litdata}.items():
        try:
            results[name] = measure(folder, batch, later)
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
    os.write(out, json.dumps(results).encode())


if __name__ == "__main__":
    main()
