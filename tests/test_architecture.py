"""The house: imports point down, a family is a package, frameworks stay in their rooms, the front door loads none."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

import lading

pytestmark = pytest.mark.jax

ROOT = Path(lading.__file__).parent
TESTS = Path(__file__).parent
# Rooms of one level are strangers to each other.
LEVELS = [
    ["errors"],
    ["runtime"],
    ["identity"],
    ["order"],
    ["source", "batch", "ledger"],
    ["loader", "report"],
    ["observe"],
    ["train"],
    ["cli.output"],  # how verbs answer: those of kits, too
    ["kits"],
    ["testing", "cli"],
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# Beyond the levels: a loader takes any tracker, and a report reads ledgers and plans, never data.
STRANGERS = {("loader", "ledger"), ("report", "source"), ("report", "batch")}
FRAMEWORKS = (
    *("torch", "jax", "lightning", "deepspeed", "accelerate", "transformers", "trl", "ray"),
    *("numba", "h5py", "soundfile", "soxr", "sklearn", "plotly", "jinja2", "starlette"),
)
# What a package or a file may import although it is not named after it.
ALLOWED = {
    "kits/jasper": {"torch"},
    "kits/chunked": {"torch"},
    "observe": {"torch"},
    "testing": {"torch", "jax"},
    "train/lightning": {"torch"},
    "kits/deepspeed": {"torch"},
    "train/transformers": {"torch", "trl"},
    "kernels": {"numba"},
    "hdf5": {"h5py"},
    "soundfile": {"soxr"},
}
FORBIDDEN_NAMES = {"utils", "common", "helpers", "core", "misc"}
MOST_LINES = 500
# Test files about the whole: the package, a file format, a run through several rooms, what two loaders agree on.
ACROSS = {
    *(
        "test_architecture",
        "test_docs",
        "test_elsewhere",
        "test_examples",
        "test_package",
        "test_release",
        "test_suite",
        "test_typing",
    ),
    *("ledger/test_disk", "ledger/test_golden", "ledger/test_kill"),
    *("loader/test_batch_ids", "loader/test_faces", "loader/test_faces_jax", "loader/test_launch"),
    *("loader/test_names_agree", "report/test_with_loader", "train/lightning/test_ddp", "train/test_ray"),
}
WHOLE_FOLDERS = {"campaigns", "documents"}


def name_of(path: Path, root: Path = ROOT) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(("lading", *parts)).removesuffix(".__init__")


def sources() -> dict[str, str]:
    """Return the text of every module by its dotted name."""
    return {name_of(path): path.read_text() for path in ROOT.rglob("*.py")}


def imports_of(source: str) -> set[str]:
    """Return what a text imports, in functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def modules_of(imported: set[str], known: Mapping[str, str]) -> set[str]:
    """Return the modules behind some imported names."""
    return {m for name in imported for m in [name if name in known else name.rpartition(".")[0]] if m in known}


def room_of(name: str) -> str:
    """Return the room that a dotted name lies in, or nothing for the front door and for others' names."""
    parts = name.split(".")
    if parts[0] != "lading":
        return ""
    return next((room for room in (".".join(parts[1:3]), "".join(parts[1:2])) if room in LEVEL), "")


def upward(texts: Mapping[str, str]) -> list[str]:
    """Return the imports that do not point down."""
    wrong = []
    for name, text in texts.items():
        room = room_of(name)
        for target in imports_of(text) if room else ():
            other = room_of(target)
            if other in ("", room):
                continue
            if LEVEL[other] >= LEVEL[room] or (room, other) in STRANGERS:
                wrong.append(f"{name} imports {target}")
    return wrong


def between_kits(texts: Mapping[str, str]) -> list[str]:
    """Return the imports of one kit by another."""
    return [
        f"{name} imports {target}"
        for name, text in texts.items()
        if name.startswith("lading.kits.")
        for target in imports_of(text)
        if target.startswith("lading.kits.") and target.split(".")[2] != name.split(".")[2]
    ]


def two_way(texts: Mapping[str, str]) -> list[str]:
    """Return the pairs of modules that import each other."""
    graph = {name: modules_of(imports_of(text), texts) - {name} for name, text in texts.items()}
    return sorted(f"{a} and {b}" for a in graph for b in graph[a] if a < b and a in graph[b])


def flat_families(texts: Mapping[str, str]) -> list[str]:
    """Return the prefixes that three files of one folder share."""
    families = defaultdict(list)
    for name in texts:
        folder, _, stem = name.rpartition(".")
        families[f"{folder}.{stem.split('_')[0]}_*"].append(stem)
    return sorted(f"{family}: {sorted(stems)}" for family, stems in families.items() if len(stems) > 2)


def framework_imports(texts: Mapping[str, str]) -> list[str]:
    """Return the frameworks imported in files that are not theirs."""
    wrong = []
    for name, text in texts.items():
        parts = name.split(".")[1:]
        place = "/".join(parts)
        allowed = {f for f in FRAMEWORKS if f in parts}
        for where, frameworks in ALLOWED.items():
            allowed |= frameworks if place == where or place.startswith(where + "/") or where in parts[-1:] else set()
        found = {target.split(".")[0] for target in imports_of(text)}
        wrong += [f"{name} imports {f}" for f in FRAMEWORKS if f in found and f not in allowed]
    return wrong


def strays(tests: list[Path], texts: Mapping[str, str], root: Path = TESTS) -> list[str]:
    """Return the test files that are named after no module of the package their folder mirrors."""
    wrong = []
    for path in tests:
        folder = ".".join(("lading", *path.parent.relative_to(root).parts))
        subject = path.stem.removeprefix("test_")
        beside = {name.rpartition(".")[2] for name in texts if name.rpartition(".")[0] == folder}
        named = any(subject == module or subject.startswith(f"{module}_") for module in beside)
        place = path.relative_to(root).with_suffix("")
        about_the_whole = str(place) in ACROSS or place.parts[0] in WHOLE_FOLDERS or subject.startswith("laws")
        if not named and not about_the_whole:
            wrong.append(str(place))
    return sorted(wrong)


RULES = {
    "imports point down": (
        upward,
        [
            {"lading.order.plan": "from lading.loader import Loader"},
            {"lading.order.plan": "def f():\n    import lading.report.run"},
            {"lading.source.tagged": "from lading.batch import pack"},
            {"lading.loader.torch.loader": "from lading.ledger import Ledger"},
            {"lading.runtime.files": "if TYPE_CHECKING:\n    from lading.identity import Bill"},
            {"lading.loader.engine": "from lading.kits.jasper.dataset import JASPERSteeringDataset"},
            {"lading.train.policy": "def f():\n    from lading.kits.chunked import read_config"},
            {"lading.kits.jasper.verbs": "from lading.cli.ask import show"},
        ],
    ),
    "no kit imports another": (
        between_kits,
        [
            {"lading.kits.jasper.loader": "from lading.kits.chunked.config import read_config"},
            {"lading.kits.web.verbs": "def f():\n    import lading.kits.formats.mds"},
        ],
    ),
    "no two files import each other": (
        two_way,
        [
            {"lading.order.a": "from lading.order import b", "lading.order.b": "from lading.order.a import x"},
            {
                "lading.order.a": "from lading.order.b import x",
                "lading.order.b": "if TYPE_CHECKING:\n    from lading.order.a import x",
            },
        ],
    ),
    "a family is a package": (
        flat_families,
        [{"lading.order.pack_a": "", "lading.order.pack_b": "", "lading.order.pack": ""}],
    ),
    "frameworks stay in their rooms": (
        framework_imports,
        [
            {"lading.order.plan": "import torch"},
            {"lading.loader.engine": "def f():\n    from torch.utils import data"},
            {"lading.loader.jax.loader": "import torch"},
            {"lading.source.columns": "import numba"},
        ],
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_house_keeps_its_rules(rule):
    """Every rule of the house holds for every file."""
    wrong = RULES[rule][0](sources())

    assert not wrong, f"{rule}:\n" + "\n".join(wrong)


@pytest.mark.parametrize(("rule", "texts"), [(rule, texts) for rule, (_, all_) in RULES.items() for texts in all_])
def test_a_deliberate_violation_is_caught(rule, texts):
    """A rule that could not fail would be no rule."""
    assert RULES[rule][0](texts)


def test_tests_mirror_the_tree():
    """A reader finds the tests of a module by its name; a stray file is caught."""
    wrong = strays(list(TESTS.rglob("test_*.py")), sources())

    assert not wrong, "\n".join(wrong)
    assert strays([TESTS / "order" / "test_nothing_of_ours.py"], sources())


def test_no_room_for_odds_and_ends():
    """Modules are named after ideas, and none is too long to hold one."""
    texts = sources()
    long = [f"{name}: {n} lines" for name, text in texts.items() if (n := len(text.splitlines())) > MOST_LINES]

    assert not {part for name in texts for part in name.split(".")} & FORBIDDEN_NAMES
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
        [sys.executable, "-c", LOADED.format(first=first)], capture_output=True, text=True, check=True, timeout=600
    )

    assert found.stdout.strip() == loaded


def doors() -> list[str]:
    """Return the packages that open names lazily."""
    return sorted(
        name for name, text in sources().items() if "= lazy_names(__name__" in text and name != "lading.runtime.lazy"
    )


@pytest.mark.parametrize("door", doors())
def test_every_public_name_opens(door):
    """Each exported name can be imported; an unknown one is refused by name."""
    package = importlib.import_module(door)
    missing = [name for name in package.__all__ if not hasattr(package, name)]

    assert not missing
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018


@pytest.mark.parametrize("door", doors())
def test_type_checkers_see_the_names_that_open_lazily(door):
    """The list for type checkers is the list for the interpreter."""
    package = importlib.import_module(door)
    tree = ast.parse(sources()[door])
    typed = {
        alias.asname
        for block in tree.body
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    eager = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}

    defined = {
        node.targets[0].id for node in tree.body if isinstance(node, ast.Assign) and hasattr(node.targets[0], "id")
    }

    assert typed == set(package.__all__) - eager - defined - {"errors", "__version__"}


@pytest.mark.parametrize("door", doors())
def test_no_lazy_name_is_shadowed_by_a_module(door):
    """A lazily opened name that equals a module of its room would become that module once it is imported."""
    package = importlib.import_module(door)
    modules = {m.name for m in pkgutil.iter_modules(package.__path__)}

    assert not modules & set(getattr(package, "_HOMES", {}))
