"""Say what stands between this tree and a release: ``python .ci/release.py v1.2.3`` exits 1 and lists it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILLED_IN_BY_THE_OWNER = ("pyproject.toml", "CITATION.cff", "SECURITY.md", "CODE_OF_CONDUCT.md")


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Return what is left to do: placeholders, fragments of the changelog, versions that differ from the tag."""
    texts = {name: (root / name).read_text() for name in FILLED_IN_BY_THE_OWNER}
    left = [f"{name}: {n} placeholders" for name, text in texts.items() if (n := text.count("PLACEHOLDER"))]
    fragments = [path.name for path in sorted((root / "changelog.d").glob("*.*.md"))]
    left += [f"changelog.d: {len(fragments)} fragments; run towncrier build"] if fragments else []
    version = tag.removeprefix("v")
    ours = re.search(r'^__version__ = "(.+)"', (root / "src/lading/__init__.py").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (.+)", texts["CITATION.cff"], re.MULTILINE)
    for place, found in (("__version__", ours), ("CITATION.cff", cited)):
        if found is None or found[1] != version:
            left.append(f"{place}: {found[1] if found else 'none'}, the tag says {version}")
    if f"## {version} " not in (root / "CHANGELOG.md").read_text():
        left.append(f"CHANGELOG.md: no section {version}")
    return left


if __name__ == "__main__":
    found = problems(sys.argv[1] if len(sys.argv) > 1 else "v?")
    print("\n".join(found) or "ready")
    sys.exit(bool(found))
