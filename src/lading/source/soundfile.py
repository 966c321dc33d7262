"""Which sound some bytes are, as soundfile reads their header."""

from __future__ import annotations

import io

import soundfile

_PLAYED = {"WAV": "audio/wav", "FLAC": "audio/flac", "OGG": "audio/ogg", "MP3": "audio/mpeg"}


def sound_type(data: bytes) -> str | None:
    """Return the media type of a sound that browsers play, or None."""
    try:
        return _PLAYED.get(soundfile.info(io.BytesIO(data)).format)
    except soundfile.LibsndfileError:
        return None
