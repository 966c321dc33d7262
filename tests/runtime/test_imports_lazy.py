"""Doors that open at first use."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lading.errors import MissingExtraError

PACKAGE = {
    "__init__.py": "from lading.runtime.imports import lazy_names\n\n"
    "__getattr__, __dir__, __all__ = lazy_names(__spec__)\n",
    "__init__.pyi": "from door.one import first as first\n"
    "from door.two import (\n    Second as Second,\n    third as third,\n)\n"
    "from door.absent import fourth as fourth\n\nnumber: int\n",
    "one.py": "first = 1\n",
    "two.py": "Second, third = 2, 3\n",
    "absent.py": "import wandb.no_such_module\n",
}


def write_folder(folder: Path) -> Path:
    """Write the package as files."""
    (folder / "door").mkdir()
    for name, text in PACKAGE.items():
        (folder / "door" / name).write_text(text)
    return folder


def write_archive(folder: Path) -> Path:
    """Write the package into a zip file."""
    with zipfile.ZipFile(folder / "door.zip", "w") as archive:
        for name, text in PACKAGE.items():
            archive.writestr(f"door/{name}", text)
    return folder / "door.zip"


@pytest.fixture(params=[write_folder, write_archive])
def door(request, tmp_path, monkeypatch):
    """Return a package with a stub, imported from a folder and from an archive."""
    monkeypatch.syspath_prepend(str(request.param(tmp_path)))
    yield importlib.import_module("door")
    for name in [n for n in sys.modules if n.partition(".")[0] == "door"]:
        del sys.modules[name]


def test_a_stub_is_the_list_of_names(door):
    """Imports are names, one on a line or several in brackets; what the stub declares besides is not."""
    assert door.__all__ == ["first", "Second", "third", "fourth"]
    assert {"first", "Second", "third", "fourth"} <= set(dir(door))


def test_a_name_opens_its_own_module_only(door):
    """And is looked up once."""
    assert "door.two" not in sys.modules

    assert (door.Second, door.third) == (2, 3)

    assert "door.two" in sys.modules and "door.one" not in sys.modules
    assert vars(door)["Second"] == 2


def test_a_name_that_needs_an_extra_says_which(door):
    """One line with the command, whatever of the package is missing."""
    with pytest.raises(MissingExtraError, match=r"door.fourth needs wandb, .*pip install 'lading\[wandb\]'"):
        _ = door.fourth


def test_an_unknown_name_is_an_attribute_error(door):
    """As in any module."""
    with pytest.raises(AttributeError, match="module 'door' has no attribute 'number'"):
        _ = door.number


COLLECTED = """
import gc
import lading
gc.set_threshold(10, 1, 1)  # a full collection is always due
full = []
gc.callbacks.append(lambda phase, info: full.append(info["generation"] == 2))
lading.Plan
gc.callbacks.clear()
assert gc.isenabled() and gc.get_threshold() == (10, 1, 1)
print(sum(full))
"""


def test_nothing_is_collected_while_files_are_opened():
    """Beside a framework one full collection takes longer than all our files; what opens the door may meet one."""
    done = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, check=True)

    assert int(done.stdout) <= 4


@pytest.mark.parametrize("collects", [True, False])
def test_a_door_leaves_the_collector_as_it_was(door, collects):
    """Also where opening a file failed."""
    (gc.enable if collects else gc.disable)()
    try:
        assert door.first == 1
        with pytest.raises(MissingExtraError):
            _ = door.fourth
        assert gc.isenabled() is collects
    finally:
        gc.enable()
