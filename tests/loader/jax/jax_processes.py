"""Run a JAX loader in one of several processes and write down what it yields.

Usage: jax_processes.py PROCESS PROCESSES PORT STORE OUT STEPS [PAUSE]
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def make_loader(store: str, **options):
    """The loader that all tests of several processes use: packed rows, G = 8, short last batch."""
    from lading.batch import llm_batch
    from lading.loader.jax.loader import JaxLoader
    from lading.order.packing.rules import PackingRules
    from lading.source.tokens.packed import PackedRows

    rows = PackedRows(store, PackingRules(16, "best_fit", "split"))
    return JaxLoader({"corpus": rows}, 8, seed=5, convert=llm_batch, **options)


def line_of(step: int, batch, total) -> str:
    """What a process holds of a batch: tokens and documents by row number."""
    held = {}
    for tokens, documents in zip(batch.inputs.addressable_shards, batch.document_idx.addressable_shards, strict=True):
        first = tokens.index[0].start or 0
        for row, values in enumerate(zip(tokens.data.tolist(), documents.data.tolist(), strict=True)):
            held[first + row] = values
    return json.dumps({"step": step, "rows": held, "total": int(total), "shape": list(batch.inputs.shape)}) + "\n"


def write_state(path: Path, state: dict) -> None:
    """Replace a state file at once."""
    path.with_suffix(".part").write_text(json.dumps(state))
    path.with_suffix(".part").rename(path)


def main() -> None:
    """Iterate over epochs until enough steps were yielded."""
    process, processes, port, store, out, steps, *pause = sys.argv[1:]
    import jax

    if int(processes) > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    folder = Path(out)
    (folder / f"pid{process}").write_text(str(os.getpid()))
    loader = make_loader(store)
    if (folder / "state.json").exists():
        loader.set_state((folder / "state.json").read_text())
    total_of = jax.jit(lambda batch: batch.inputs.sum())
    with (folder / f"process{process}-of-{processes}.jsonl").open("a") as file:
        while loader.step < int(steps):
            for batch, bill in loader.with_bills():
                file.write(line_of(bill.step, batch, total_of(batch)))
                file.flush()
                if process == "0":
                    write_state(folder / "state.json", loader.get_state())
                if loader.step >= int(steps):
                    break
                time.sleep(float(pause[0]) if pause else 0)


if __name__ == "__main__":
    main()
