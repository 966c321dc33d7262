"""Text from outside is shown, never obeyed."""

from __future__ import annotations

import unicodedata

from hypothesis import given, strategies as st

from lading.runtime.fields import brief, shown


@given(st.text(alphabet=st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Zs", "Ll", "Lo", "So"])))
def test_nothing_shown_can_act(text):
    """No control, format or half character is left, whatever the text; one line stays one line."""
    result = shown(text)

    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in result)
    assert len(result.splitlines()) <= 1
    result.encode()


def test_text_that_people_read_is_left_alone():
    """Letters, accents, ideographs, spaces of all kinds and emoji are shown as they are."""
    for text in ("code", "Grüße, 世界 – ½ €", "a b c　d", "🚀"):
        assert shown(text) == text


def test_escape_sequences_are_spelled_out():
    """What would clear a screen, set a title, ring or turn the writing round is readable."""
    assert shown("\x1b]0;pwned\x07a\r\n\u202eb\x9b2J") == r"\x1b]0;pwned\x07a\r\n\u202eb\x9b2J"


def test_a_found_value_is_short_whatever_it_is():
    """Millions of items, long texts and long integers end in a line."""
    nested: list = []
    for _ in range(100_000):
        nested = [nested]

    for value in ("x" * 10_000_000, list(range(1_000_000)), {i: i for i in range(100_000)}, 1 << 10_000_000, nested):
        assert len(brief(value)) < 250
    assert brief("\x1b[2J") == r"'\x1b[2J'"
