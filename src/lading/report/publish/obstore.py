"""Objects under an address, by the package ``obstore``: S3, GCS, Azure, a folder (``file://``)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lading.errors import ConfigError, LedgerError, missing_extra
from lading.runtime.fields import shown

try:
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore, from_url
except ImportError as error:
    raise missing_extra("obstore", "store", "publishing and fetching") from error

_CHUNK = 1 << 20


class ObjectStore:
    """The objects under an address. Credentials come from where the service's own tools look for them.

    Args:
        url: ``s3://bucket/prefix``, ``gs://``, ``az://`` or ``file:///folder``.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        if "://" not in url:
            raise ConfigError(f"{url!r} is no address: expected s3://bucket/prefix, gs://, az:// or file:///folder.")
        with self._said():
            local = url.removeprefix("file://") if url.startswith("file://") else None
            self._store = from_url(url) if local is None else LocalStore(local, mkdir=True)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each object, by name."""
        with self._said():
            return {entry["path"]: entry["size"] for batch in obstore.list(self._store) for entry in batch}

    def put(self, name: str, content: bytes | Path) -> None:
        """Make an object, whole or not at all; one of that name is replaced."""
        with self._said(name):
            obstore.put(self._store, name, content)

    def delete(self, name: str) -> None:
        """Remove an object."""
        with self._said(name):
            obstore.delete(self._store, name)

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return an object that should be small; one byte more than that of one that is not."""
        content = bytearray()
        for piece in self.pieces(name):
            content += piece
            if len(content) > most_bytes:
                break
        return bytes(content)

    def pieces(self, name: str, offset: int = 0) -> Iterator[bytes]:
        """Yield the bytes of an object from an offset on; that must be before its end, or 0."""
        with self._said(name):
            found = obstore.get(self._store, name, options={"range": {"offset": offset}} if offset else None)
            for piece in found.stream(min_chunk_size=_CHUNK):
                yield bytes(piece)

    @contextlib.contextmanager
    def _said(self, name: str = "") -> Iterator[None]:
        """Say an error of the service in one line."""
        try:
            yield
        except FileNotFoundError as error:
            where = f"{self.url} has no object {shown(name)!r}"
            raise LedgerError(f"{where}: it was removed, or the address is wrong.") from error
        except (BaseError, OSError, ValueError) as error:
            text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise LedgerError(f"{self.url}: {shown(text)}. Check address and credentials, and try again.") from error
