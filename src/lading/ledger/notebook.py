"""A ledger in a notebook: where the run is, and how far it got."""

from __future__ import annotations

from typing import Any

from lading.runtime.fields import html_table


def ledger_html(ledger: Any) -> str:
    """Return a ledger as HTML.

    Args:
        ledger: The ledger.
    """
    delivered, used = ledger._last, ledger._settled
    rows = [("run", ledger.run_dir), ("attempt", ledger.attempt), ("records", ledger.record), *ledger.config.items()]
    rows += [("last step delivered", delivered), ("last step used", used)] if delivered >= 0 else []
    return f"<p>Ledger</p>{html_table(['', ''], rows)}"
