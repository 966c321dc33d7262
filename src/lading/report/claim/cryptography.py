"""Keys that sign claims: ed25519, by the package ``cryptography``.

key        -----BEGIN PRIVATE KEY-----      yours alone: mode 0600, refused where others can read it
key.pub    -----BEGIN PUBLIC KEY-----       for everybody who wants to check what you say
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lading.errors import ConfigError, missing_extra
from lading.runtime.fields import Origin
from lading.runtime.files import create_aside
from lading.runtime.paths import local_path

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError as error:
    raise missing_extra("cryptography", "sign", "signing claims and checking them") from error

_MOST_BYTES = 1 << 14


class PublicKey:
    """A key that says who signed."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.keyid = hashlib.sha256(raw).hexdigest()

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Say whether the owner of the key signed a message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class PrivateKey:
    """A key that signs."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self.sign = key.sign
        self.public = PublicKey(key.public_key())


def new_key(path: str | os.PathLike[str]) -> PublicKey:
    """Make a key for its owner alone, and its public half beside it; replace nothing."""
    file = local_path(path)
    public = file.with_name(f"{file.name}.pub")
    key, pem = Ed25519PrivateKey.generate(), serialization.Encoding.PEM
    try:
        if file.exists() or public.exists():
            raise FileExistsError
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as private:
            private.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
            private.flush()
            os.fsync(private.fileno())
        content = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        create_aside(public, content)
    except FileExistsError as error:
        raise ConfigError(f"{file} or {public} is there, and a key is never replaced. Take a new name.") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}. Give a file in a folder of yours.") from error
    return PublicKey(key.public_key())


def private_key(path: str | os.PathLike[str]) -> PrivateKey:
    """Return the key in a file; refuse one that others can read."""
    file = local_path(path)
    content = Origin(file, ConfigError, "Make a key with `lading key new FILE`.").read(_MOST_BYTES)
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{file} can be read by others than you (mode {stat.S_IMODE(file.stat().st_mode):03o}): expected mode 600. "
            f"Whoever read it can sign as you: make a new key, or, if nobody did, run `chmod 600 {file}`."
        )
    load = partial(serialization.load_pem_private_key, content, password=None)
    return PrivateKey(_loaded(file, load, Ed25519PrivateKey, "a private ed25519 key in PEM, without a password"))


def public_key(path: str | os.PathLike[str]) -> PublicKey:
    """Return the public key in a file."""
    file = local_path(path)
    content = Origin(file, ConfigError, "Give the file FILE.pub that `lading key new FILE` wrote.").read(_MOST_BYTES)
    load = partial(serialization.load_pem_public_key, content)
    return PublicKey(_loaded(file, load, Ed25519PublicKey, "a public ed25519 key in PEM"))


def _loaded(file: Path, load: Callable[[], Any], kind: Any, expected: str) -> Any:
    why: object = "a key of another kind"
    try:
        found = load()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        found, why = None, error
    if isinstance(found, kind):
        return found
    raise ConfigError(f"{file}: expected {expected}, found something else ({why}). Give the file of the key.")
