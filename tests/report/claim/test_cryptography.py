"""Keys: made for one person, refused where others can read them or where they are none."""

from __future__ import annotations

import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lading.errors import ConfigError
from lading.report.claim.cryptography import new_key, private_key, public_key


def test_a_key_signs_and_its_public_half_checks(tmp_path):
    """And nobody else's does."""
    new_key(tmp_path / "mine")
    new_key(tmp_path / "other")
    signature = private_key(tmp_path / "mine").sign(b"text")

    assert public_key(tmp_path / "mine.pub").signed(b"text", signature)
    assert not public_key(tmp_path / "mine.pub").signed(b"texts", signature)
    assert not public_key(tmp_path / "other.pub").signed(b"text", signature)
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o600


def test_a_key_is_never_replaced(tmp_path):
    """Whoever lost the old one could prove nothing any more."""
    new_key(tmp_path / "key")
    before = (tmp_path / "key").read_bytes()

    with pytest.raises(ConfigError, match=r"is there, and a key is never replaced. Take a new name"):
        new_key(tmp_path / "key")

    assert (tmp_path / "key").read_bytes() == before
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        new_key(tmp_path / "nowhere" / "key")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o622])
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    """With what to do."""
    new_key(tmp_path / "key")
    (tmp_path / "key").chmod(mode)

    with pytest.raises(ConfigError, match=rf"mode {mode:03o}\): expected mode 600.*chmod 600"):
        private_key(tmp_path / "key")


def test_files_that_are_no_keys_are_refused_by_name(tmp_path):
    """Missing, a folder, too large, a text, a public key, a key of another kind."""
    new_key(tmp_path / "key")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "large").write_bytes(b"x" * (1 << 15))
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    other = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "curve").write_bytes(other.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    expected = {
        "missing": "No such file",
        ".": "expected a file, found something else",
        "large": "at most 16384 bytes",
        "text": "expected a private ed25519 key",
        "key.pub": "expected a private ed25519 key",
        "curve": "found something else .a key of another kind",
    }

    for name, text in expected.items():
        with pytest.raises(ConfigError, match=text):
            private_key(tmp_path / name)
    for name in ("missing", "text", "key"):
        with pytest.raises(ConfigError, match=r"No such file|expected a public ed25519 key"):
            public_key(tmp_path / name)
