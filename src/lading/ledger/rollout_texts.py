"""What rollouts say, where training keeps it (``keep_texts=True``): beside the ledger, to be deleted when one likes.

texts/00001.jsonl    a line a rollout: its number · the hash of its token ids · its text

A text belongs to the rollout of its number *and* its hash, whichever attempt made it: a resume makes the same rollouts
again, and what was rolled back is told apart. Nothing else of a run depends on these files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lading.ledger.run_folder import RunFolder
from lading.runtime.files import Journal


def keep_texts(run: RunFolder, rank: int, texts: Iterable[tuple[int, int | None, str]]) -> None:
    """Write rollout, hash and text of some rollouts of a rank."""
    run.texts.mkdir(parents=True, exist_ok=True)
    lines = [{"rollout": rollout, "content": content, "text": text} for rollout, content, text in texts]
    Journal(run.texts / f"{rank:05d}.jsonl").append(*lines, syncs=False)


def read_texts(run: Path, wanted: Iterable[tuple[int, int | None]]) -> dict[int, str]:
    """Return the texts of some rollouts by number, as far as they were kept; a damaged line is passed over.

    Args:
        run: The run's folder.
        wanted: Number and hash of each.
    """
    rollouts, found = set(wanted), {}
    for path in sorted(RunFolder(run).texts.glob("*.jsonl")):
        for line in Journal(path).values():
            rollout, text = line.get("rollout"), line.get("text")
            if isinstance(rollout, int) and isinstance(text, str) and (rollout, line.get("content")) in rollouts:
                found[rollout] = text
    return found
