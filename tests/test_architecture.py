"""The house: imports point down, frameworks stay in their files, the front door loads none."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import lading

ROOT = Path(lading.__file__).parent
# Rooms of one level are strangers to each other.
LEVELS = [
    ["errors"],
    ["runtime"],
    ["identity"],
    ["order"],
    ["source", "batch", "ledger"],
    ["loader", "report"],
    ["observe", "datamodule"],
    ["train"],
    ["testing", "cli"],
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# Beyond the levels: a loader takes any tracker, and a report reads ledgers and plans, never data.
STRANGERS = {("loader", "ledger"), ("report", "source"), ("report", "batch")}
FRAMEWORKS = [
    "torch",
    "jax",
    "lightning",
    "deepspeed",
    "accelerate",
    "numba",
    "h5py",
    "soundfile",
    "soxr",
    "sklearn",
    "plotly",
]
# Rooms and files that are a framework's by their nature: which frameworks they may import at the top.
FREE = {
    "loader": {"torch"},
    "observe": {"torch"},
    "datamodule": {"torch"},
    "runtime": {"torch"},
    "testing": {"torch", "jax"},
}
FORBIDDEN_NAMES = {"utils", "common", "helpers", "core", "misc"}


def modules():
    """Return every module of the package with its dotted name."""
    return [(path, ".".join(("lading", *path.relative_to(ROOT).with_suffix("").parts))) for path in ROOT.rglob("*.py")]


def imports_of(source: str, top_only: bool = False):
    """Return the modules a source imports, type-checking blocks left out."""
    tree = ast.parse(source)
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    nodes = tree.body if top_only else ast.walk(tree)
    found = []
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def upward(name: str, source: str) -> list[str]:
    """Return the imports of a module that do not point down."""
    room = name.split(".")[1] if name.count(".") else ""
    if room not in LEVEL:
        return []  # the front door itself
    wrong = []
    for target in imports_of(source):
        parts = target.split(".")
        if parts[0] != "lading" or len(parts) < 2 or parts[1] not in LEVEL or parts[1] == room:
            continue
        if LEVEL[parts[1]] >= LEVEL[room] or (room, parts[1]) in STRANGERS:
            wrong.append(f"{name} imports {target}")
    return wrong


def frameworks_at_top(path: Path, source: str) -> list[str]:
    """Return the frameworks a file imports at its top without being named after them."""
    room = path.relative_to(ROOT).parts[0]
    name = "/".join(path.relative_to(ROOT).with_suffix("").parts)
    allowed = set(FREE.get(room, set()))
    allowed |= {f for f in FRAMEWORKS if f in name}
    allowed |= {"numba"} if "kernels" in name else set()
    allowed |= {"torch"} if "jasper" in name or "lightning" in name or "deepspeed" in name else set()
    allowed |= {"h5py"} if "hdf5" in name else set()
    allowed |= {"soxr"} if "soundfile" in name else set()
    found = {target.split(".")[0] for target in imports_of(source, top_only=True)}
    return [f"{path.relative_to(ROOT)} imports {f}" for f in FRAMEWORKS if f in found and f not in allowed]


def test_imports_point_down():
    """No room imports one above it or beside it; so no two packages import each other."""
    wrong = [line for path, name in modules() for line in upward(name, path.read_text())]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("lading.order.plan", "from lading.loader import Loader"),
        ("lading.order.plan", "def f():\n    import lading.report.run"),
        ("lading.source.tagged", "from lading.batch import pack"),
        ("lading.loader.torch.loader", "from lading.ledger import Ledger"),
    ],
)
def test_the_import_test_catches_violations(name, source):
    """A deliberate violation is found, in a function body too."""
    assert upward(name, source)


def test_frameworks_stay_in_files_named_after_them():
    """A reader sees from a file's name which framework it needs."""
    wrong = [line for path, _ in modules() for line in frameworks_at_top(path, path.read_text())]

    assert not wrong, "\n".join(wrong)
    assert frameworks_at_top(ROOT / "order" / "plan.py", "import torch")


def test_no_room_for_odds_and_ends():
    """Modules are named after ideas and none holds two of them."""
    names = {part for _, name in modules() for part in name.split(".")}
    long = [
        f"{path.relative_to(ROOT)}: {n} lines"
        for path, _ in modules()
        if (n := len(path.read_text().splitlines())) > 500
    ]

    assert not names & FORBIDDEN_NAMES
    assert not long, long


LOADED = """
import sys
{first}
import lading
frameworks = {{"torch", "jax", "lightning", "deepspeed", "numba", "pandas", "duckdb", "pyarrow"}}
print(sorted({{m.split(".")[0] for m in sys.modules}} & frameworks))
"""


@pytest.mark.parametrize(("first", "loaded"), [("pass", "[]"), ("import torch.utils.data", "['torch']")])
def test_import_lading_loads_no_framework(first, loaded):
    """Proved in a fresh process; with a framework imported first the same check sees it."""
    found = subprocess.run(
        [sys.executable, "-c", LOADED.format(first=first)], capture_output=True, text=True, check=True, timeout=120
    )

    assert found.stdout.strip() == loaded


def test_every_public_name_opens():
    """Each exported name can be imported from the front door."""
    missing = []
    for name in lading.__all__:
        try:
            getattr(lading, name)
        except (AttributeError, ModuleNotFoundError) as error:
            missing.append(f"{name}: {error}")

    assert not missing, "\n".join(missing)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        lading.Nothing  # noqa: B018


def test_no_lazy_name_is_shadowed_by_a_module():
    """A lazily opened name that equals a module of its room would become that module once it is imported."""
    shadowed = []
    for room in sorted(LEVEL):
        package = importlib.import_module(f"lading.{room}")
        homes = getattr(package, "_HOMES", {})
        modules_of = {m.name for m in pkgutil.iter_modules(getattr(package, "__path__", []))}
        shadowed += [f"lading.{room}.{name}" for name in sorted(modules_of & set(homes))]

    assert not shadowed
