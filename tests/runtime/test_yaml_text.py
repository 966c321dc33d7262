"""YAML without surprises: bombs, circles, floods and strange tags end in one sentence, at once."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings, strategies as st

from lading.errors import ConfigError
from lading.runtime.yaml_text import parse_yaml, read_yaml


def bomb(levels: int) -> str:
    """Return a few lines that stand for 9 ** levels values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (bomb(12), "aliases stand for more than"),
        ("a: &a {x: 1}\n" + "\n".join(f"b{i}: &b{i} {{<<: [*a, *a]}}" for i in range(3)) + "\n" + bomb(9), "aliases"),
        ("a: &x [*x]", "an alias stands for something it is part of"),
        ("&x {a: *x}", "an alias stands for something it is part of"),
        ("- " * 100_000, "nested at most 64 deep"),
        ("[" * 100_000, "nested at most 64 deep"),
        ("- 1\n" * 200_000, "at most 50000 values"),
        ("x" * 2_000_000, "at most 1048576 characters"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
        ("!!timestamp nonsense", "not YAML"),
        ("!!int ''", "not YAML"),
        ("!!bool maybe", "not YAML"),
        ("2001-99-99", "not YAML"),
        ("1" * 5000, "not YAML"),
        ("a: 1\na: 2", "a: is there twice, in lines 1 and 2"),
        ("a: \x07", "not YAML"),
    ],
)
def test_what_would_hold_or_break_the_reader_is_refused_at_once(text, words):
    """Each took minutes or a traceback once."""
    began = time.process_time()

    with pytest.raises(ConfigError, match=words):
        parse_yaml(text, "run.yaml")

    assert time.process_time() - began < 2


def test_aliases_that_people_write_are_read():
    """An anchor used a few times, and merged keys."""
    text = "base: &base {lr: 1e-3, wd: 0}\nfirst: {<<: *base, lr: 2e-3}\nsecond: [*base, *base]"

    found = parse_yaml(text, "run.yaml")

    assert found["first"] == {"lr": 2e-3, "wd": 0}
    assert found["second"] == [{"lr": 1e-3, "wd": 0}] * 2


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab*&:!{}[]-,'\"\n #|>%@1e.<~?\t", max_size=40) | st.text(max_size=40))
def test_any_text_is_a_value_or_a_config_error(text):
    """No other exception leaves the reader."""
    with contextlib.suppress(ConfigError):
        parse_yaml(text, "run.yaml")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    """Bytes, and a missing file, are said."""
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(tmp_path / "x.yaml")
    with pytest.raises(ConfigError, match="No such file"):
        read_yaml(tmp_path / "y.yaml")
