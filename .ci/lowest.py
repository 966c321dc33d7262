"""Print the lowest version that pyproject.toml allows of everything Lading can use, for ``pip install -c``.

torch stays as constraints.txt has it: one build of it is known to be there.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lowest(project: dict) -> dict[str, str]:
    """Return the lower bound of each requirement, extras included; two different ones are an error."""
    found: dict[str, str] = {}
    needs = [*project["dependencies"], *(n for extra in project["optional-dependencies"].values() for n in extra)]
    for need in needs:
        match = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", need)
        if match is None and not need.startswith("lading["):
            raise SystemExit(f"{need} has no lower bound. Write one, and try it: make test-lowest")
        if match is not None and found.setdefault(match[1].lower(), match[2]) != match[2]:
            raise SystemExit(f"{match[1]} has two lower bounds: {found[match[1].lower()]} and {match[2]}. Choose one.")
    return found


def main() -> None:
    """Print them, a line each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    torch = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    pins = [f"{name}=={version}" for name, version in lowest(project).items() if name != "torch"]
    print("\n".join([*pins, torch[0] if torch else "torch"]))


if __name__ == "__main__":
    main()
