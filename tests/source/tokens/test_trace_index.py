"""Laws of the index of tokens: it finds what a scan finds, and is the same whoever makes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.errors import SourceError
from lading.runtime.blocks.run import Task
from lading.source.tokens.tokenizer import FunctionTokenizer
from lading.source.tokens.trace_index import TraceIndex, TraceJob, index_tokens, maximal_spans
from lading.source.tokens.write import TokenWriter

documents = st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=12)


def store_of(path: Path, texts: list[list[int]], vocab_size: int = 3) -> Path:
    """A token store of some documents."""
    with TokenWriter(path, FunctionTokenizer(list, vocab_size, vocab_size - 1, "numbers"), overwrite=True) as writer:
        for text in texts:
            writer.add(np.array(text, np.int64))
    return path


def scanned(texts: list[list[int]], wanted: list[int]) -> list[tuple[int, int]]:
    """Every place that holds some tokens, looked for one by one."""
    size = len(wanted)
    return [(d, s) for d, t in enumerate(texts) for s in range(len(t) - size + 1) if t[s : s + size] == wanted]


@settings(max_examples=60, deadline=None)
@given(documents, st.integers(1, 30), st.integers(1, 4), st.sampled_from([3, 255, 256, 65535, 65536]))
def test_every_n_gram_is_found_where_a_scan_finds_it(tmp_path_factory, texts, block_tokens, size, vocab_size):
    """At exactly these places, none across documents; what is not there is not found."""
    path = store_of(tmp_path_factory.mktemp("law") / "store", texts, vocab_size)

    index = index_tokens(path, block_tokens=block_tokens)

    grams = np.stack(np.meshgrid(*[np.arange(3)] * size)).reshape(size, -1).T
    for gram, holds in zip(grams, index.holds(grams), strict=True):
        expected = scanned(texts, gram.tolist())
        assert [(place.document, place.start) for place in index.places(gram)] == expected
        assert holds == bool(expected)


@settings(max_examples=60, deadline=None)
@given(documents, st.lists(st.integers(0, 2), max_size=12), st.integers(1, 4))
def test_spans_are_all_those_that_cannot_be_made_longer(tmp_path_factory, texts, asked, least):
    """Each is held by a document, is in no longer one, and none is left out."""
    index = index_tokens(store_of(tmp_path_factory.mktemp("law") / "store", texts), block_tokens=20)

    found = list(maximal_spans(index, np.array(asked, np.int64), least))

    places = [(a, b) for a in range(len(asked)) for b in range(a + least, len(asked) + 1) if scanned(texts, asked[a:b])]
    assert found == [(a, b) for a, b in places if not any(c <= a and b <= d and (a, b) != (c, d) for c, d in places)]


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_same_bytes_from_any_number_of_workers_and_from_tasks(tmp_path):
    """Processes, tasks in any order, a block that was damaged and is made again."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 50, 40).tolist() for _ in range(30)]
    made = {}
    for name, workers in (("one", 1), ("three", 3)):
        path = store_of(tmp_path / name, texts, 50)
        made[name] = content(index_tokens(path, workers=workers, block_tokens=300).job.folder)
    path = store_of(tmp_path / "tasks", texts, 50)
    halves = [index_tokens(path, task=Task(number, 2), block_tokens=300) for number in (1, 0)]
    (halves[1].job.folder / "000001.bin").write_bytes(b"\0" * 1200)
    index_tokens(path, block_tokens=300)

    assert halves[0] is None
    assert len(made["one"]) == 10
    assert made["one"] == made["three"] == content(halves[1].job.folder)


@pytest.mark.slow
def test_the_same_bytes_from_ray(tmp_path):
    """One Ray task a block."""
    texts = [np.random.default_rng(n).integers(0, 50, 40).tolist() for n in range(30)]
    here, ray = (store_of(tmp_path / name, texts, 50) for name in ("here", "ray"))

    one = index_tokens(here, block_tokens=300).job.folder
    other = index_tokens(ray, workers=2, on="ray", block_tokens=300).job.folder

    assert content(one) == content(other)


def test_a_store_without_an_index_or_built_again_says_so(tmp_path):
    """The way out is named, and an index of what was there before is not taken for one."""
    path = store_of(tmp_path / "store", [[0, 1, 2]])
    with pytest.raises(SourceError, match=r"1 of 1 blocks are missing\. Make it with lading tokens index"):
        TraceIndex(path)
    index_tokens(path)
    kept = content(TraceJob(path).folder)
    store_of(path, [[2, 1, 0]])
    for name, data in kept.items():
        folder = path / "trace-0123"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    with pytest.raises(SourceError, match="trace-0123 is of what the store held before"):
        TraceIndex(path)
