"""Compile the kernels of ``src/kernels`` while a wheel or an editable install is made: one file for 3.11 and later.

Without a compiler the wheel is a plain one, and says so by its tag: the twins in Python give the same to the last bit.
``LADING_COMPILED=1`` makes a failure an error, ``0`` compiles nothing, ``sanitized`` makes kernels that watch their own
memory. ``python hatch_build.py [FILE]`` compiles in place, or elsewhere.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
FILE = ROOT / "src" / "lading" / "_kernels.abi3.so"
QUICK = ["-O3", "-g0", "-fwrapv", "-fvisibility=hidden"]
CHECKED = ["-O1", "-g", "-fwrapv", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DLADING_NO_CLONES"]


def compile_kernels(how: str, file: Path = FILE) -> None:
    """Compile; ``how`` is the value of ``LADING_COMPILED``."""
    from setuptools import Distribution, Extension

    flags = CHECKED if how == "sanitized" else QUICK
    extension = Extension(
        "lading._kernels",
        sorted(str(path) for path in (ROOT / "src" / "kernels").glob("*.c")),
        extra_compile_args=flags,
        extra_link_args=[flag for flag in flags if flag.startswith("-fsanitize")],
        py_limited_api=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        build = Distribution({"name": "lading", "ext_modules": [extension]}).get_command_obj("build_ext")
        build.build_lib, build.build_temp = folder, folder
        build.ensure_finalized()
        build.run()
        made = next(Path(folder).rglob("_kernels*"))
        aside = file.with_suffix(".new")
        aside.write_bytes(made.read_bytes())
        aside.replace(file)  # a process may have the old one open


class KernelsHook(BuildHookInterface[Any]):
    """Add the compiled kernels to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is put together."""
        how = os.environ.get("LADING_COMPILED", "")
        if how == "0":
            return
        try:
            compile_kernels(how)
        except Exception as error:
            FILE.unlink(missing_ok=True)  # of older sources
            if how:
                raise
            self.app.display_warning(f"the kernels cannot be compiled here ({error}): this wheel is plain, and slower.")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"cp311-abi3-{platform}")
        build_data["artifacts"].append(FILE.relative_to(ROOT).as_posix())


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    compile_kernels(os.environ.get("LADING_COMPILED", ""), target)
    print(f"compiled {os.path.relpath(target)}")
