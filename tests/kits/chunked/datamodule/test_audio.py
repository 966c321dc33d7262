"""Audio data modules: files split into partitions, in chunks too, and a model that learns from them."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
import torch

from lading.errors import SourceError
from lading.kits.chunked import ChunkedQuantizedAutoregressiveAudio, QuantizedAutoregressiveAudio
from lading.loader.torch.chunked import ChunkedDataLoader


@pytest.fixture
def tones(tmp_path):
    """Twenty files of tones, of different lengths."""
    for i in range(20):
        t = np.arange(1000 + 10 * i) / 8000
        soundfile.write(tmp_path / f"tone{i}.wav", 0.5 * np.sin(2 * np.pi * (200 + 20 * i) * t), 8000)
    return tmp_path


def test_files_are_split_as_promised(tones):
    """[0, p) trains, the next half of the rest validates, the rest tests; in natural order."""
    module = QuantizedAutoregressiveAudio(tones, train_percentage=0.8)
    module.setup()
    module.setup("test")

    names = [[name.rsplit("/", 1)[-1] for name in d.file_names] for d in _partitions(module)]

    assert names == [
        [f"tone{i}.wav" for i in range(16)],
        ["tone16.wav", "tone17.wav"],
        ["tone18.wav", "tone19.wav"],
    ]
    assert (module.d_input, module.d_output, module.n_tokens, module.l_output) == (1, 256, 256, None)


def test_default_split_is_88_percent(tones):
    """17 files train, one validates, two test."""
    module = QuantizedAutoregressiveAudio(tones, bits=4)
    module.setup()

    assert [len(d) for d in _partitions(module)] == [17, 1, 2]
    assert module.d_output == 16
    with pytest.raises(SourceError, match="train_percentage=88: expected a share"):
        QuantizedAutoregressiveAudio(tones, train_percentage=88)


def test_batches_of_different_lengths_are_filled(tones):
    """Through the loader: x with silence, y with -100, and the lengths."""
    module = QuantizedAutoregressiveAudio(tones, train_percentage=0.8, loader={"batch_size": 4})
    module.setup()

    x, y, names = next(iter(module.val_dataloader()))

    assert x.shape == (2, 1170) and y.shape == (2, 1170, 1)
    assert names["lengths"].tolist() == [1160, 1170]
    assert (x[0, 1160:] == 128).all() and (y[0, 1160:] == -100).all()


def test_chunks_of_windows_cover_the_training_files(tones):
    """The chunked module goes through all windows; the validation size is inferred."""
    module = ChunkedQuantizedAutoregressiveAudio(tones, sample_len=100, train_chunk_size=10, loader={"batch_size": 8})
    module.setup()
    loader = module.train_dataloader()

    assert isinstance(loader, ChunkedDataLoader)
    seen = [bill.idx.tolist() for _ in range(loader.total_chunks) for _, bill in loader.with_bills()]

    assert sorted(i for idx in seen for i in idx) == list(range(len(module.dataset_train)))
    assert module.val_chunk_size == len(module.val_dataloader()) == 2
    assert module.dataset_train.total_chunks == 1


def test_a_tiny_autoregressive_model_learns_tones(tones):
    """The loss on synthetic tones falls well below that of guessing."""
    torch.manual_seed(0)
    module = ChunkedQuantizedAutoregressiveAudio(
        tones, bits=4, sample_len=200, train_chunk_size=4, loader={"batch_size": 8}
    )
    module.setup()
    loader = module.train_dataloader()
    embed, recur, head = torch.nn.Embedding(16, 16), torch.nn.GRU(16, 32, batch_first=True), torch.nn.Linear(32, 16)
    model = torch.nn.ModuleList([embed, recur, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    losses = []
    for _ in range(15):
        for x, y, _ in loader:
            logits = head(recur(embed(x))[0])
            loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), y[..., 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    assert losses[0] > 2.5
    assert np.mean(losses[-5:]) < 0.7 * losses[0]


def _partitions(module) -> list:
    return [module.dataset_train, module.dataset_val, module.dataset_test]


def test_windows_in_order_carry_their_starts(tones):
    """For truncated back-propagation: the state is kept from batch to batch, and reset where a file begins."""
    data = QuantizedAutoregressiveAudio(
        tones, sample_len=100, in_order=True, loader={"batch_size": 3, "shuffle": False}
    )
    data.setup()
    before = None
    for x, y, names in data.train_dataloader():
        starts = names["starts"]
        assert len(starts) == len(x) == len(y)
        if before is not None:
            assert all(now == 0 or now == before[row] + 100 for row, now in enumerate(starts))
        before = starts
    assert "starts" in next(iter(data.val_dataloader()))[2]
    with pytest.raises(SourceError, match="in_order=True with chunk sizes"):
        ChunkedQuantizedAutoregressiveAudio(tones, in_order=True, train_chunk_size=3)
