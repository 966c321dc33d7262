"""The chart library of the page, inlined so that no request leaves the file."""

from __future__ import annotations

from lading.errors import missing_extra

try:
    from plotly.offline import get_plotlyjs
except ImportError as error:
    raise missing_extra("plotly", "report", "a report page") from error


def library() -> str:
    """Return the JavaScript of the charts, safe inside a script element."""
    return str(get_plotlyjs()).replace("</script", "<\\/script")
