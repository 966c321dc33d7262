"""Tokenising a corpus: workers beside one worker, and beside ``encode_batch`` with all threads.

    workers    2 workers against 1, the same store; each worker is one thread
    threads    all workers, files and store included, against `encode_batch` with all threads on texts in memory

The corpus is Python's own library, a file a document, as JSONL; the tokenizer is a byte-level BPE trained on it here.
"""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import case, interleaved

from lading.runtime.processes import usable_cpus
from lading.source.tokens.build import build_tokens

CORPUS_BYTES = 24_000_000
ROUNDS = 3


def cases() -> Iterable[dict[str, Any]]:
    """Yield one dict per case."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        texts = _texts(CORPUS_BYTES)
        (folder / "corpus.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
        tokenizer = _trained(texts[:: max(len(texts) // 300, 1)], folder / "tokenizer.json")
        size = sum(len(text.encode()) for text in texts)
        yield from _measured(folder, tokenizer, texts, size / 1e6)


def _measured(folder: Path, tokenizer: Any, texts: list[str], megabytes: float) -> Iterable[dict[str, Any]]:
    def build(workers: int) -> None:
        shutil.rmtree(folder / "out", ignore_errors=True)
        build_tokens(folder / "corpus.jsonl", folder / "out", str(folder / "tokenizer.json"), workers=workers)

    def threads() -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        for start in range(0, len(texts), 512):
            tokenizer.encode_batch(texts[start : start + 512], add_special_tokens=False)

    cpus = usable_cpus()
    ways = {"one": lambda: build(1), "two": lambda: build(2), "all": lambda: build(cpus)}
    seconds = interleaved(ways, ROUNDS)  # before any thread of the tokenizer: workers are forked
    seconds |= interleaved({"threads": threads}, ROUNDS)
    rate = {name: round(megabytes / value, 3) for name, value in seconds.items()}
    yield case("corpora/2 workers", rate["two"], rate["one"], "MB/s", higher_is_better=True, floor=1.6, cpus=cpus)
    yield case("corpora/all workers", rate["all"], rate["threads"], "MB/s", higher_is_better=True, floor=0.9, cpus=cpus)


def _texts(size: int) -> list[str]:
    """Return the sources of the standard library and of what is installed, up to a size."""
    texts, total = [], 0
    for folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")):
        for path in sorted(Path(folder).rglob("*.py")):
            if total >= size:
                return texts
            text = path.read_text(errors="replace")
            texts.append(text)
            total += len(text)
    return texts


def _trained(texts: list[str], path: Path) -> Any:
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=8000, special_tokens=["<|endoftext|>"], show_progress=False)
    made.train_from_iterator(texts, trainer)
    made.save(str(path))
    return made
