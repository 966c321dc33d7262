"""Quantized audio: encodings against values worked out by hand, and windows of real files."""

from __future__ import annotations

import copy
import gc
import math
import subprocess
import sys
import weakref
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch
from hypothesis import given, strategies as st

from lading.errors import SourceError
from lading.kits.chunked import audio
from lading.kits.chunked.audio import (
    QuantizedAudioDataset,
    dequantize,
    linear_decode,
    linear_encode,
    mu_law_decode,
    mu_law_encode,
    q_zero,
    quantize,
)
from lading.kits.chunked.audio.soundfile import ClipReader, natural_order, probe
from lading.kits.chunked.audio.torch import ChunkedQuantizedAudioDataset, WindowsInOrder, collate_audio


def tone(seconds: float, rate: int, hertz: float = 220.0, channels: int = 1) -> np.ndarray:
    """Return a tone [frames, channels]; each further channel is quieter."""
    t = np.arange(int(seconds * rate)) / rate
    return np.stack([0.5 * np.sin(2 * np.pi * hertz * t) / (c + 1) for c in range(channels)], axis=1)


def write(path, samples, rate=8000, **options):
    """Write samples and return the path as text."""
    soundfile.write(path, samples, rate, **options)
    return str(path)


def by_hand(samples: list[float], bits: int, law: str) -> list[int]:
    """Work the levels out one by one, from the definitions alone."""
    low, high, mu = min(samples), max(samples), 2**bits - 1
    levels = []
    for s in samples:
        x = (s - low) / (high - low + 1e-6)
        if law == "mu-law":
            x = 2 * x - 1
            sign = (x > 0) - (x < 0)
            x = (sign * math.log(1 + mu * abs(x + 1e-8)) / math.log(1 + mu) + 1) / 2
        levels.append(math.trunc(x * (2**bits - 0.01) + 0.005))
    return levels


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize(("law", "encode"), [("linear", linear_encode), ("mu-law", mu_law_encode)])
def test_encodings_equal_values_worked_out_by_hand(bits, law, encode):
    """Both encodings follow their definitions at 4, 8 and 16 bits."""
    samples = [-0.83, -0.5, -0.1234, 0.0, 0.0101, 0.25, 0.77]

    levels = encode(np.array(samples), bits)

    assert levels.dtype == np.int64
    assert levels.tolist() == by_hand(samples, bits, law)


def test_quantize_has_the_levels_of_the_definition():
    """The ends of [0, 1] are the first and last level; silence is half way."""
    assert quantize(np.array([0.0, 0.25, 0.5, 1.0]), 8).tolist() == [0, 64, 128, 255]
    assert quantize(np.array([1.0], dtype=np.float32), 16).tolist() == [65535]
    assert (q_zero(4), q_zero(8), q_zero(16)) == (8, 128, 32768)
    assert dequantize(np.array([0, 128, 255]), 8).tolist() == [-1.0, 0.0, 127 / 128]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 16))
def test_dequantize_undoes_quantize_within_one_step(values, bits):
    """What comes back differs by at most one level's width."""
    x = np.array(values)

    back = (dequantize(quantize(x, bits), bits) + 1) / 2

    assert np.abs(back - x).max() <= 1 / 2**bits + 1e-9


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_decoding_undoes_encoding(bits):
    """Decoded clips equal the scaled originals within the width of the levels there."""
    x = np.sin(np.linspace(0, 20, 500))
    scaled = 2 * (x - x.min()) / (x.max() - x.min()) - 1

    linear = np.abs(linear_decode(linear_encode(x, bits), bits) - scaled).max()
    mu_law = np.abs(mu_law_decode(mu_law_encode(x, bits), bits) - scaled).max()

    assert linear <= 2.1 / 2**bits
    assert mu_law <= 2.1 / 2**bits * math.log(2**bits)


def test_inputs_are_never_modified():
    """Encoding works on copies, for arrays and tensors alike."""
    for x in (np.linspace(-1, 1, 9), torch.linspace(-1, 1, 9)):
        before = copy.deepcopy(x)
        for function in (quantize, linear_encode, mu_law_encode):
            function(x, 8)
        assert (x == before).all()


def test_tensors_come_back_as_tensors_and_clips_are_scaled_each_by_itself():
    """Three axes hold many clips; a loud neighbour does not make a clip quiet."""
    quiet, loud = torch.linspace(-0.01, 0.01, 5).reshape(1, 5, 1), torch.linspace(-1, 1, 5).reshape(1, 5, 1)

    both = linear_encode(torch.cat([quiet, loud]), 8)

    assert both.dtype == torch.int64 and both.shape == (2, 5, 1)
    assert both[0].tolist() == linear_encode(quiet, 8)[0].tolist()
    assert dequantize(both, 8).dtype == torch.float32


@pytest.mark.parametrize("bits", [0, 25, 8.0, True, "8"])
def test_impossible_bits_are_refused(bits):
    """Bits are an integer from 1 to 24."""
    with pytest.raises(SourceError, match=r"bits=.*expected an integer from 1 to 24"):
        quantize(np.zeros(3), bits)


@pytest.mark.parametrize(
    ("name", "rate", "channels"),
    [("a.wav", 8000, 1), ("b.wav", 44100, 2), ("c.flac", 22050, 1), ("d.flac", 48000, 6), ("e.ogg", 16000, 2)],
)
def test_real_files_become_windows_of_one_rate(tmp_path, name, rate, channels):
    """WAV, FLAC and OGG of several rates and channel counts: mono, resampled, shaped as promised."""
    write(tmp_path / name, tone(1.0, rate, channels=channels), rate)

    data = QuantizedAudioDataset(tmp_path, bits=8, sample_len=1000, target_sr=8000)

    assert len(data) == 8
    for x, y in (data[i] for i in range(8)):
        assert x.dtype == y.dtype == torch.int64 and x.shape == (1000,) and y.shape == (1000, 1)
        assert x[0] == data.zero and (x[1:] == y[:-1, 0]).all()
        assert y.min() == 0 and y.max() == 255


def test_a_window_equals_the_definition(tmp_path):
    """From file to levels: mean of the channels, scaled by itself, quantized."""
    samples = tone(0.5, 8000, channels=2)
    path = write(tmp_path / "a.wav", samples, subtype="DOUBLE")

    _, y = QuantizedAudioDataset(path, bits=8, sample_len=700, quantization="mu-law")[3]

    assert y[:, 0].tolist() == by_hand(samples.mean(axis=1)[2100:2800].tolist(), 8, "mu-law")


@pytest.mark.parametrize(("rate", "target"), [(44100, 16000), (16000, 44100), (48000, 8000), (11025, 8000)])
def test_windows_of_a_resampled_file_are_cuts_of_the_resampled_whole(tmp_path, rate, target):
    """Reading by windows gives what resampling the whole file first would give."""
    clip = probe(write(tmp_path / "a.wav", tone(1.0, rate), rate, subtype="DOUBLE"))
    whole = soxr.resample(tone(1.0, rate)[:, 0], rate, target)
    reader = ClipReader(target)

    for start in (0, 777, 3500):
        assert np.abs(reader.read(clip, start, 1000) - whole[start : start + 1000]).max() < 1e-4


def test_remainders_are_kept_or_dropped(tmp_path):
    """A file of 2.5 windows gives three samples, or two; a short clip gives one, or none."""
    write(tmp_path / "long.wav", tone(0.25, 8000))
    write(tmp_path / "short.wav", tone(0.05, 8000))

    kept, dropped = (QuantizedAudioDataset(tmp_path, sample_len=800, drop_last=d) for d in (False, True))

    assert [len(kept[i][0]) for i in range(len(kept))] == [800, 800, 400, 400]
    assert [len(dropped[i][0]) for i in range(len(dropped))] == [800, 800]
    assert kept.window(3) == (1, 0, 400) and kept.file_of(3).endswith("short.wav")


def test_without_sample_len_a_file_is_a_sample(tmp_path):
    """Files are samples, in natural order, sliced by ratio."""
    for i in (10, 9, 1, 2):
        write(tmp_path / f"take{i}.wav", tone(i / 100, 8000))

    whole, part = QuantizedAudioDataset(tmp_path), QuantizedAudioDataset(tmp_path, ratio_min=0.25, ratio_max=0.75)

    assert [len(whole[i][0]) for i in range(4)] == [80, 160, 720, 800]
    assert [len(part[i][0]) for i in range(2)] == [160, 720]
    assert sorted(["b2", "b10", "a3"], key=natural_order) == ["a3", "b2", "b10"]


def test_files_that_are_no_audio_are_named_or_skipped(tmp_path):
    """An empty file and a text named .wav: an error with the file's name, or left out and listed."""
    write(tmp_path / "good.wav", tone(0.1, 8000))
    (tmp_path / "empty.wav").touch()
    (tmp_path / "letter.wav").write_text("Dear listener, this is no sound.")

    with pytest.raises(SourceError, match=r"empty\.wav \(0 bytes\) is not an audio file.*on_bad_file='skip'"):
        QuantizedAudioDataset(tmp_path)
    data = QuantizedAudioDataset(tmp_path, on_bad_file="skip")
    (tmp_path / "empty.wav").unlink()
    with pytest.raises(SourceError, match=r"letter\.wav \(\d+ bytes\) is not an audio file"):
        QuantizedAudioDataset(tmp_path)

    assert len(data) == 1
    assert [name.rsplit("/", 1)[-1] for name in data.skipped] == ["empty.wav", "letter.wav"]


def test_files_without_samples_and_damaged_files_are_named(tmp_path):
    """A header without data, and data that ends early, are said so."""
    path = write(tmp_path / "nothing.wav", np.zeros((0, 1)))
    with pytest.raises(SourceError, match=r"nothing\.wav is an audio file without samples"):
        QuantizedAudioDataset(path)

    path = write(tmp_path / "torn.wav", tone(1, 8000))
    data = QuantizedAudioDataset(path, sample_len=1000)
    write(path, tone(0.2, 8000))
    with pytest.raises(SourceError, match=r"torn\.wav (gave \d+ frames|cannot be decoded)"):
        data[7]


def test_missing_and_empty_folders_are_named(tmp_path):
    """The folder that is wrong stands in the error."""
    with pytest.raises(SourceError, match=r"audio folder not found: .*nowhere"):
        QuantizedAudioDataset(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="audio folder is empty: "):
        QuantizedAudioDataset(tmp_path)


@pytest.mark.parametrize("quantization", ["linear", "mu-law"])
def test_silence_has_levels_too(tmp_path, quantization):
    """A clip without any difference divides by no zero."""
    path = write(tmp_path / "silence.wav", np.zeros((100, 1)))

    _, y = QuantizedAudioDataset(path, quantization=quantization)[0]

    assert (y == 0).all()


def test_context_and_padding_shape_the_pair(tmp_path):
    """``context_len`` cuts the head of y, ``pad_len`` puts silence in front of x."""
    path = write(tmp_path / "a.wav", tone(0.1, 8000))
    plain_x, plain_y = QuantizedAudioDataset(path)[0]

    x, y = QuantizedAudioDataset(path, context_len=30, pad_len=12)[0]

    assert (x[:12] == 128).all() and (x[12:] == plain_x).all()
    assert (y == plain_y[30:]).all()
    assert QuantizedAudioDataset(path, return_type=None)[0].shape == (800, 1)


def test_variable_lengths_are_filled_to_the_same_length(tmp_path):
    """x with silence, y with -100, both to the longest; lengths tell how much is real."""
    write(tmp_path / "a1.wav", tone(0.02, 8000))
    write(tmp_path / "a2.wav", tone(0.05, 8000))
    data = QuantizedAudioDataset(tmp_path, bits=4)

    x, y, names = data.collate([data[0], data[1]])

    assert x.shape == (2, 400) and y.shape == (2, 400, 1)
    assert (x[0, 160:] == 8).all() and (y[0, 160:] == -100).all() and (y[1] >= 0).all()
    assert names["lengths"].dtype == torch.int64 and names["lengths"].tolist() == [160, 400]
    windows, names = collate_audio([torch.ones(2, 1), torch.ones(3, 1)], zero=8)
    assert windows.shape == (2, 3, 1) and windows[0, 2] == 8 and names["lengths"].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"quantization": "cubic"}, "quantization='cubic': expected one of 'linear', 'mu-law'"),
        ({"return_type": "pairs"}, "return_type='pairs': expected one of 'autoregressive', None"),
        ({"on_bad_file": "ignore"}, "on_bad_file='ignore': expected one of 'raise', 'skip'"),
        ({"sample_len": 0}, "sample_len=0: expected an integer from 1 up"),
        ({"target_sr": 8000.5}, r"target_sr=8000\.5: expected an integer"),
        ({"ratio_min": 0.9, "ratio_max": 0.1}, "expected 0 <= ratio_min <= ratio_max <= 1"),
    ],
)
def test_impossible_options_are_refused(tmp_path, option, message):
    """Each option says what it expects."""
    path = write(tmp_path / "a.wav", tone(0.1, 8000))

    with pytest.raises(ValueError, match=message):
        QuantizedAudioDataset(path, **option)


def test_index_out_of_range(tmp_path):
    """Indices end where the windows end; negative ones count from the end."""
    data = QuantizedAudioDataset(write(tmp_path / "a.wav", tone(0.1, 8000)), sample_len=400)

    assert (data[-1][1] == data[1][1]).all()
    with pytest.raises(IndexError, match=r"Index 2 out of range \[0, 2\)"):
        data[2]


@pytest.mark.parametrize("target_sr", [None, 4000])
@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_a_thousand_windows_do_not_decode_the_file_a_thousand_times(tmp_path, monkeypatch, suffix, target_sr):
    """Windows are sought: all of them together decode little more than the file, and open it once."""
    frames, opened = [], []
    read, init = soundfile.SoundFile.read, soundfile.SoundFile.__init__
    samples = tone(20.0, 8000)
    data = QuantizedAudioDataset(
        write(tmp_path / f"a.{suffix}", samples), sample_len=160 if target_sr is None else 80, target_sr=target_sr
    )
    monkeypatch.setattr(soundfile.SoundFile, "read", lambda s, n, **o: frames.append(n) or read(s, n, **o))
    monkeypatch.setattr(soundfile.SoundFile, "__init__", lambda s, *a, **o: opened.append(a) or init(s, *a, **o))

    for index in np.random.default_rng(0).permutation(len(data)):
        data[index]

    assert len(data) == 1000
    assert len(opened) == 1
    assert sum(frames) <= (1 if target_sr is None else 10) * len(samples)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_workers_read_right_windows(tmp_path):
    """Forked workers do not share a file offset with their parent or each other."""
    for i in range(3):
        write(tmp_path / f"a{i}.wav", tone(0.5, 8000, hertz=100 * (i + 1)))
    data = QuantizedAudioDataset(tmp_path, sample_len=100)
    alone = [data[i][1] for i in range(len(data))]

    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="fork")
    together = [y for _, y in loader]

    assert all((a == b).all() for a, b in zip(alone, together, strict=True))


def test_fingerprint_changes_with_files_and_options(tmp_path):
    """Another file or another option is another dataset."""
    path = write(tmp_path / "a.wav", tone(0.1, 8000))
    before, other = QuantizedAudioDataset(path).fingerprint(), QuantizedAudioDataset(path, bits=4).fingerprint()
    write(path, tone(0.2, 8000))

    assert len({str(f) for f in (before, other, QuantizedAudioDataset(path).fingerprint())}) == 3


def test_chunked_dataset_knows_its_chunks(tmp_path):
    """Chunks of windows: one pass covers them all; without a size there is one chunk."""
    data = ChunkedQuantizedAudioDataset(write(tmp_path / "a.wav", tone(1, 8000)), sample_len=800, chunk_size=4)

    seen = [i for k in range(data.total_chunks) for i in data.chunk(k).indices]

    assert data.total_chunks == 3 and sorted(seen) == list(range(10))
    assert (data.chunk(0)[0][1] == data[seen[0]][1]).all()
    assert ChunkedQuantizedAudioDataset(data.path, sample_len=800).total_chunks == 1


def test_door_of_the_audio_module_knows_the_datasets():
    """The datasets are found beside the functions, and nothing else is invented."""
    assert "QuantizedAudioDataset" in dir(audio)
    with pytest.raises(AttributeError, match="has no attribute 'Quantised'"):
        audio.Quantised  # noqa: B018


def test_sub_folders_are_read_in_natural_order(tmp_path):
    """album2 before album10, a folder's own files in their place; hidden files and folders are left out."""
    for name in (
        "album10/1.wav",
        "album2/10.wav",
        "album2/9.wav",
        "single.wav",
        ".trash/old.wav",
        "album2/.hidden.wav",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, tone(0.1, 8000))

    data = QuantizedAudioDataset(tmp_path)

    expected = ["album2/9.wav", "album2/10.wav", "album10/1.wav", "single.wav"]
    assert [str(Path(name).relative_to(tmp_path)) for name in data.file_names] == expected


def test_files_of_different_rates_are_refused_unless_resampled(tmp_path):
    """Two of them are named; with target_sr they go together."""
    write(tmp_path / "a.wav", tone(0.1, 8000), 8000)
    write(tmp_path / "b.wav", tone(0.1, 16000), 16000)

    with pytest.raises(SourceError, match=r"a\.wav has 8000 Hz, .*b\.wav has 16000: expected the same.*target_sr="):
        QuantizedAudioDataset(tmp_path)
    assert len(QuantizedAudioDataset(tmp_path, target_sr=8000)) == 2


@pytest.mark.parametrize("quantization", ["linear", "mu-law"])
def test_levels_at_16_bits_are_those_of_float32(tmp_path, quantization):
    """s4 computes in float32, and at 16 bits a float64 would differ; the formulas again, in torch."""
    samples = np.random.default_rng(0).uniform(-1, 1, 4000)
    write(tmp_path / "a.wav", samples, subtype="PCM_16")
    wave = torch.from_numpy(soundfile.read(tmp_path / "a.wav", dtype="float32")[0])

    x = (wave - wave.min()) / (wave.max() - wave.min() + 1e-6)
    if quantization == "mu-law":
        mu = torch.tensor(2**16 - 1, dtype=torch.float32)
        x = 2 * x - 1
        x = (torch.sign(x) * torch.log1p(mu * torch.abs(x + 1e-8)) / torch.log1p(mu) + 1) / 2
    expected = (x * (2**16 - 0.01) + 0.005).long()

    y = QuantizedAudioDataset(tmp_path, bits=16, quantization=quantization, return_type=None)[0][:, 0]
    assert (y - expected).abs().max() <= 1  # the two libraries' last bits
    assert (y == expected).float().mean() > 0.97
    assert ClipReader().read(probe(str(tmp_path / "a.wav")), 0, 10).dtype == np.float32


@pytest.mark.parametrize("target_sr", [None, 4000])
@pytest.mark.parametrize("sample_len", [None, 100, 101])
def test_stereo_is_interleaved_on_request(tmp_path, sample_len, target_sr):
    """Left, right, left ...; windows of any length are cuts of the whole; mono stays the mean."""
    write(tmp_path / "a.wav", tone(0.2, 8000, channels=2), subtype="FLOAT")
    whole = QuantizedAudioDataset(tmp_path, return_type=None, channels="interleave", target_sr=target_sr)
    frames = 1600 if target_sr is None else 800
    reader, clip = ClipReader(target_sr, interleaved=True), probe(str(tmp_path / "a.wav"))
    values = reader.read(clip, 0, 2 * frames)

    assert whole[0].shape == (2 * frames, 1)
    if target_sr is None:
        assert np.allclose(values.reshape(-1, 2), tone(0.2, 8000, channels=2), atol=1e-6)
    data = QuantizedAudioDataset(
        tmp_path, return_type=None, channels="interleave", sample_len=sample_len, target_sr=target_sr
    )
    cuts = [reader.read(clip, *data.window(i)[1:]) for i in range(len(data))]
    assert np.allclose(np.concatenate(cuts), values, atol=2e-3)
    assert data.fingerprint() != QuantizedAudioDataset(tmp_path, return_type=None, sample_len=sample_len).fingerprint()


def test_interleaving_needs_the_same_channels_in_every_file(tmp_path):
    """Two files are named; an unknown word is refused."""
    write(tmp_path / "a.wav", tone(0.1, 8000))
    write(tmp_path / "b.wav", tone(0.1, 8000, channels=2))

    with pytest.raises(SourceError, match=r"a\.wav has 1 channels, .*b\.wav has 2: expected the same"):
        QuantizedAudioDataset(tmp_path, channels="interleave")
    with pytest.raises(SourceError, match="channels='left': expected one of 'mono', 'interleave'"):
        QuantizedAudioDataset(tmp_path, channels="left")


@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=9), batch_size=st.integers(1, 4), seed=st.integers(0, 99)
)
def test_windows_in_order_keep_a_file_on_its_row(lengths, batch_size, seed):
    """Every window once; the windows of a file on the same row of successive batches, from its first."""

    class Windows:
        window_ends = np.cumsum(lengths)

    sampler = WindowsInOrder(Windows(), batch_size, shuffle=True, seed=seed)  # type: ignore[arg-type]
    batches = list(sampler)

    assert sorted(chain(*batches)) == list(range(sum(lengths)))
    assert len(sampler) == len(batches) and max(map(len, batches)) <= batch_size
    place = {index: (number, row) for number, batch in enumerate(batches) for row, index in enumerate(batch)}
    for end, length in zip(np.cumsum(lengths).tolist(), lengths, strict=True):
        first = place[end - length]
        assert [place[end - length + k] for k in range(length)] == [(first[0] + k, first[1]) for k in range(length)]
    sampler.set_epoch(1)
    assert sorted(chain(*sampler)) == list(range(sum(lengths)))


def test_open_files_are_closed_with_their_reader(tmp_path):
    """And before the interpreter ends: soundfile's own __del__ would come too late there."""
    reader = ClipReader()
    reader.read(probe(write(tmp_path / "a.wav", tone(0.1, 8000))), 0, 5)
    (handle,) = reader._local.files.values()
    finalizers = [f for f in weakref.finalize._registry if f.alive and f.peek()[0] is reader]  # type: ignore[attr-defined]

    assert [f.atexit for f in finalizers] == [True]
    del reader, finalizers
    gc.collect()
    assert handle.closed


def test_leaving_the_interpreter_says_nothing(tmp_path):
    """A script that read windows and ends has nothing on stderr: no traceback of a file closed too late."""
    path = write(tmp_path / "a.wav", tone(0.1, 8000))
    script = f"from lading import QuantizedAudioDataset; data = QuantizedAudioDataset({path!r}); print(len(data[0][0]))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=600)

    assert (done.returncode, done.stdout, done.stderr) == (0, "800\n", "")
