"""The house: imports point down, a family is a package, frameworks stay in their rooms, the front door loads none."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

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
# Beyond the levels: a loader takes any tracker, and a report reads ledgers and plans, never data; a trace reads tokens.
STRANGERS = {("loader", "ledger"), ("report", "source"), ("report", "batch")}
KNOWN_TO_EACH_OTHER = {("lading.report.trace", "lading.source.tokens")}
FRAMEWORKS = (
    *("torch", "jax", "lightning", "deepspeed", "accelerate", "transformers", "trl", "ray"),
    *("h5py", "soundfile", "soxr", "sklearn", "plotly", "jinja2", "starlette", "cryptography", "obstore"),
)
# What a package or a file may import although it is not named after it.
ALLOWED = {
    "kits/audit": {"torch"},
    "kits/jasper": {"torch"},
    "kits/chunked": {"torch"},
    "observe": {"torch"},
    "testing": {"torch", "jax"},
    "train/lightning": {"torch"},
    "kits/deepspeed": {"torch"},
    "train/transformers": {"torch", "trl"},
    "hdf5": {"h5py"},
    "soundfile": {"soxr"},
}
# The tables that say where a kit's part is: they are read when a plan, a state, a configuration or a verb names it.
NAME_KITS = {"lading.order.decided", "lading.loader.adapting", "lading.loader.chunks"}
FRAMES = {
    *("_getframe", "_current_frames", "currentframe", "getouterframes", "extract_stack", "walk_stack"),
    *("f_back", "f_code", "f_globals", "f_locals", "co_name", "co_qualname"),
}
CLASS_NAMES = {"__name__", "__qualname__", "__module__"}
TAKES_TEXT_APART = {
    *("startswith", "endswith", "partition", "rpartition", "split", "removeprefix", "removesuffix"),
    *("match", "fullmatch", "search"),
}
# Names of classes that are looked at, none of another library's.
OWN_NAMES = {
    "saved['kind'] != type(policy).__name__": "a state says which policy, the user's own too, it was saved with",
    "kept.get(type(self).__name__)": "transformers files the state of a callback of ours under its class",
}
FORBIDDEN_NAMES = {"utils", "common", "helpers", "core", "misc"}
MOST_LINES = 500
MOST_OPENED = {"plain": 54, "recorded": 83}  # modules before a first batch; wanted: 60
# Test files about the whole: the package, a file format, a run through several rooms, what two loaders agree on.
ACROSS = {
    "test_front_door",
    *(
        "test_architecture",
        "test_docs",
        "test_elsewhere",
        "test_examples",
        "test_front_door",
        "test_package",
        "test_release",
        "test_suite",
        "test_typing",
    ),
    *("cli/test_verbs", "ledger/test_disk", "ledger/test_golden", "ledger/test_kill"),
    *("loader/test_batch_ids", "loader/test_faces", "loader/test_faces_jax", "loader/test_launch"),
    *("loader/test_names_agree", "report/test_with_loader", "train/lightning/test_ddp", "train/test_ray"),
}
WHOLE_FOLDERS = {"campaigns", "vectors", "documents"}


def name_of(path: Path, root: Path = ROOT) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(("lading", *parts)).removesuffix(".__init__")


@cache
def sources() -> Mapping[str, str]:
    """Return the text of every module by its dotted name, its stub included."""
    texts: dict[str, str] = defaultdict(str)
    for path in [*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi")]:
        texts[name_of(path)] += path.read_text()
    return dict(texts)


@cache  # it takes seconds to read every file, and four rules ask
def imports_of(source: str) -> frozenset[str]:
    """Return what a text imports, in functions and for type checkers too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def modules_of(imported: frozenset[str], known: Mapping[str, str]) -> set[str]:
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
            if any(name.startswith(one) and target.startswith(two) for one, two in KNOWN_TO_EACH_OTHER):
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


def kits_by_name(texts: Mapping[str, str]) -> list[str]:
    """Return where the core names a kit's module in a text, as to import it, but in the tables that may."""
    return [
        f"{name}, line {node.lineno}: {node.value}"
        for name, text in texts.items()
        if (room := room_of(name)) and LEVEL[room] < LEVEL["kits"]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("lading.kits.")
        if name not in NAME_KITS
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


def looks_at_frames(node: ast.AST) -> bool:
    """Return whether a node asks who called."""
    if isinstance(node, ast.ImportFrom):
        return any(alias.name in FRAMES or (node.module, alias.name) == ("inspect", "stack") for alias in node.names)
    if isinstance(node, ast.Constant):
        return node.value in FRAMES if isinstance(node.value, str) else False
    return isinstance(node, ast.Attribute) and (node.attr in FRAMES or ast.unparse(node) == "inspect.stack")


def has_class_name(*nodes: ast.AST) -> bool:
    """Return whether the name of a class or module is part of an expression."""
    parts = [part for node in nodes for part in ast.walk(node)]
    return any(getattr(part, "attr", getattr(part, "value", None)) in CLASS_NAMES for part in map(plain, parts))


def plain(node: ast.AST) -> ast.AST | None:
    """Return an attribute or a text; nothing else can be a name."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node if is_text or isinstance(node, ast.Attribute) else None


def looks_at_names(node: ast.AST) -> bool:
    """Return whether what happens depends on the name of a class: a comparison, a look-up, a text taken apart."""
    if isinstance(node, ast.Compare):
        found = has_class_name(node.left, *node.comparators)
    elif isinstance(node, ast.Match):
        found = has_class_name(node.subject)
    elif isinstance(node, ast.Subscript):
        found = has_class_name(node.slice)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKES_TEXT_APART:
        found = has_class_name(node.func.value, *node.args)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        found = has_class_name(*node.args[:1])
    else:
        return False
    return found and ast.unparse(node) not in OWN_NAMES


def guesses(texts: Mapping[str, str]) -> list[str]:
    """Return where behaviour depends on who calls, or on what a class is called."""
    return [
        f"{name}, line {node.lineno}: {ast.unparse(node)[:100]}"
        for name, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if looks_at_frames(node) or looks_at_names(node)
    ]


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
            {"lading.order": "from lading.kits.adaptive.curriculum import Curriculum as Curriculum"},
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
    "the core names a kit in tables only": (
        kits_by_name,
        [
            {"lading.loader.engine": "importlib.import_module('lading.kits.adaptive.runner')"},
            {"lading.order.plan": "KINDS = {'curriculum': 'lading.kits.adaptive.graded:GradedSamples'}"},
            {"lading.train.lightning.plain": "imported('lading.kits.chunked.config:read_config', 'x')"},
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
            {"lading.source.columns": "import h5py"},
        ],
    ),
    "nothing depends on who calls or on what a class is called": (
        guesses,
        [
            {"lading.loader.a": text}
            for text in (
                "import sys\nsys._getframe(1)",
                "getattr(sys, '_getframe')(1)",
                "import inspect\ncaller = inspect.stack()[1]",
                "from inspect import stack",
                "from inspect import currentframe as here",
                "inspect.currentframe()",
                "frame.f_back",
                "type(x).__name__ == 'Wrapped'",
                "'_WrappedDataLoader' != x.__class__.__qualname__",
                "type(x).__name__ in ('Image', 'Audio')",
                "any(c.__name__ == 'Trainer' for c in type(x).__mro__)",
                "type(x).__module__.startswith('ray.')",
                "getattr(type(x), '__module__').partition('.')[0]",
                "HOMES.get(type(x).__module__)",
                "HOMES[type(x).__name__]",
                "re.match('ray', type(x).__module__)",
                "match type(x).__name__:\n    case 'Wrapped': pass",
            )
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
frameworks = {{"torch", "jax", "lightning", "deepspeed", "pandas", "duckdb", "pyarrow"}}
print(sorted({{m.split(".")[0] for m in sys.modules}} & frameworks))
"""


FIRST_BATCH = """
import sys
import torch
from lading import Loader
if sys.argv[1] == "plain":
    next(iter(Loader(torch.utils.data.TensorDataset(torch.arange(64.0)), 32)))
else:  # as README's example
    from lading import Ledger
    sources = {"code": torch.randn(1000, 8), "prose": torch.randn(500, 8)}
    ledger = Ledger(sys.argv[2])
    next(Loader(sources, batch_size=8, weights={"code": 0.7, "prose": 0.3}, tracker=ledger).with_bills())
print(sum(name.split(".")[0] == "lading" for name in sys.modules), "pyarrow" in sys.modules)
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("kind", "most"), MOST_OPENED.items())
def test_a_first_batch_opens_few_files_of_ours_and_no_arrow(kind, most, tmp_path):
    """What most loaders never need (workers, packing, simulation) is opened where it is used."""
    found = subprocess.run(
        [sys.executable, "-c", FIRST_BATCH, kind, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )

    opened, has_arrow = found.stdout.split()
    assert int(opened) <= most and has_arrow == "False"


@pytest.mark.parametrize(("first", "loaded"), [("pass", "[]"), ("import duckdb", "['duckdb']")])
def test_import_lading_loads_no_framework(first, loaded):
    """Proved in a fresh process; with one of them imported first the same check sees it."""
    found = subprocess.run(
        [sys.executable, "-c", LOADED.format(first=first)], capture_output=True, text=True, check=True, timeout=600
    )

    assert found.stdout.strip() == loaded


def doors() -> dict[str, dict[str, str]]:
    """Return the packages that open names lazily, and where each name of their stubs lives."""
    return {
        name_of(path): {
            alias.asname or "": node.module or ""
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for path in sorted(ROOT.rglob("*.pyi"))
    }


@pytest.mark.parametrize(("door", "homes"), doors().items())
def test_every_name_of_a_stub_is_that_object(door, homes):
    """What type checkers are told is what the interpreter gives, even once modules of the same names are imported."""
    package = importlib.import_module(door)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in homes:
            importlib.import_module(f"{door}.{module.name}")

    assert [*homes, *(["__version__"] if door == "lading" else [])] == package.__all__
    for name, home in homes.items():
        assert getattr(package, name) is vars(importlib.import_module(home))[name], name
        assert name == "errors" or not isinstance(getattr(package, name), ModuleType), f"{name} is a module"


@pytest.mark.parametrize("door", doors())
def test_an_unknown_name_is_refused(door):
    """As any module would, by name."""
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        importlib.import_module(door).Nothing  # noqa: B018


def test_stubs_stand_beside_lazy_doors_only():
    """A stub elsewhere would hide the types of the code beside it; a lazy door without one could not open."""
    lazy = {
        name for name, text in sources().items() if "\n__getattr__, __dir__, __all__ = lazy_names(__spec__)\n" in text
    }

    assert set(doors()) == lazy
