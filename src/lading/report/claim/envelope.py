"""A signed text as a line of JSON: DSSE, with one signature of ed25519.

    {"payloadType": "application/vnd.in-toto+json", "payload": base64, "signatures": [{"keyid": ..., "sig": base64}]}

What is signed is ``DSSEv1``, then length and bytes of the type, then length and
bytes of the payload, so that no text can be taken for one of another type.
Whatever is not exactly as it is written here is refused: one text, one line.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from lading.runtime.fields import SHA256, Fields, FieldTable, record_of, row_of

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MOST_BYTES = 16 << 20


class Signer(Protocol):
    """Somebody whose signature can be checked."""

    @property
    def keyid(self) -> str: ...
    def signed(self, message: bytes, signature: bytes) -> bool:
        """Say whether the owner of the key signed a message."""


@dataclass(frozen=True)
class Envelope:
    """A text and who says that he signed it.

    Attributes:
        payload: The text.
        keyid: SHA-256 of the public key.
        signature: Not checked yet: see ``is_by``.
    """

    payload: bytes
    keyid: str
    signature: bytes

    def is_by(self, signer: Signer) -> bool:
        """Say whether the owner of a key signed it."""
        return self.keyid == signer.keyid and signer.signed(_signed_bytes(self.payload), self.signature)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the line."""
        return {
            "payloadType": PAYLOAD_TYPE,
            "payload": _base64(self.payload),
            "signatures": [{"keyid": self.keyid, "sig": _base64(self.signature)}],
        }


def sealed_in(payload: bytes, keyid: str, sign: Callable[[bytes], bytes]) -> Envelope:
    """Return a text with its signature."""
    return Envelope(payload, keyid, sign(_signed_bytes(payload)))


def envelope_from(fields: Fields) -> Envelope:
    """Return an envelope, every field checked but the signature."""
    values = fields.each(_FIELDS)
    (signature,) = values["signatures"]
    return Envelope(values["payload"], signature["keyid"], signature["sig"])


def compact(value: Any) -> bytes:
    """Return a value as JSON without a space: what is signed and hashed."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _signed_bytes(payload: bytes) -> bytes:
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _content(fields: Fields, key: str) -> bytes:
    text = fields.text(key, longest=2 * MOST_BYTES)
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        fields.refuse(key, "base64")
    if _base64(content) != text:  # the last character may hold bits that nobody reads
        fields.refuse(key, "base64 as it is written, without bits that mean nothing")
    return content


_FIELDS: FieldTable = {
    "payloadType": lambda fields, key: fields.text(key, choices=(PAYLOAD_TYPE,)),
    "payload": _content,
    "signatures": row_of(record_of(dict, {"keyid": SHA256, "sig": _content})),
}
