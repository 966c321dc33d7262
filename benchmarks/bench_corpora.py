"""Tokenising a corpus: workers beside one worker, and beside ``encode_batch`` with all threads.

    workers    2 workers against 1, the same store; each worker is one thread
    threads    all workers, files and store included, against `encode_batch` with all threads on texts in memory

The corpus is Python's own library, a file a document, as JSONL; the tokenizer is a byte-level BPE trained on it here.
The threads are those of a process of their own, started before anything is measured: a process that has used them
cannot fork, and whether there are any is read once. Groups of 512 texts: 2 048 or all at once were no faster.
``encode_batch_fast``, which leaves out what a corpus does not need and which our workers use, is shown beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import case, interleaved

from lading.runtime.processes import usable_cpus
from lading.source.tokens.build import build_tokens

CORPUS_BYTES = 16_000_000
ROUNDS = 3
GROUP = 512


def cases() -> Iterable[dict[str, Any]]:
    """Yield one dict per case."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        texts = _texts(CORPUS_BYTES)
        (folder / "corpus.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
        _train(texts[:: max(len(texts) // 300, 1)], folder / "tokenizer.json")
        with _threads(folder) as encode:
            yield from _measured(folder, encode, sum(len(text.encode()) for text in texts) / 1e6)


def _measured(folder: Path, encode: Callable[[str], None], megabytes: float) -> Iterable[dict[str, Any]]:
    def build(workers: int) -> None:
        shutil.rmtree(folder / "out", ignore_errors=True)
        build_tokens(folder / "corpus.jsonl", folder / "out", str(folder / "tokenizer.json"), workers=workers)

    cpus = usable_cpus()
    ways: dict[str, Callable[[], None]] = {str(n): lambda n=n: build(n) for n in sorted({1, 2, cpus})}
    ways |= {name: lambda name=name: encode(name) for name in ("encode_batch", "encode_batch_fast")}
    seconds = interleaved(ways, ROUNDS, warm_up=False)  # each way takes seconds
    rate = {name: round(megabytes / value, 3) for name, value in seconds.items()}
    more: dict[str, Any] = {"higher_is_better": True, "cpus": cpus}
    yield case("corpora/2 workers", rate["2"], rate["1"], "MB/s", floor=1.6, **more)
    yield case("corpora/all workers", rate[str(cpus)], rate["encode_batch"], "MB/s", floor=0.9, **more)
    yield case("corpora/all workers, encode_batch_fast", rate[str(cpus)], rate["encode_batch_fast"], "MB/s", **more)


@contextlib.contextmanager
def _threads(folder: Path) -> Iterator[Callable[[str], None]]:
    """Start the process of the peer; give what has it encode all texts once, by a method of its tokenizer."""
    command = [sys.executable, "-m", "benchmarks.bench_corpora", str(folder)]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "true"}
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        to, of = process.stdin, process.stdout

        def encode(method: str) -> None:
            print(method, file=to, flush=True)
            assert of.readline().strip() == "done"

        assert of.readline().strip() == "ready"
        yield encode
        to.close()


def peer(folder: Path) -> None:
    """Encode all texts with all threads whenever a line of standard input asks for it."""
    import tokenizers

    texts = [json.loads(line)["text"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    print("ready", flush=True)
    for line in sys.stdin:
        encode = getattr(tokenizer, line.strip())
        for start in range(0, len(texts), GROUP):
            encode(texts[start : start + GROUP], add_special_tokens=False)
        print("done", flush=True)


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


def _train(texts: list[str], path: Path) -> None:
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=8000, special_tokens=["<|endoftext|>"], show_progress=False)
    made.train_from_iterator(texts, trainer)
    made.save(str(path))


if __name__ == "__main__":
    peer(Path(sys.argv[1]))
