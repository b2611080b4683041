"""The wheel holds what a user needs and nothing else, and PyPI would take it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_holds_the_package_its_recipes_and_pages_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"  # building leaves files behind
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
    build = [sys.executable, "-m", "build", "--outdir", str(tmp_path / "dist"), str(source)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {str(path.relative_to(source)) for path in (source / "regard").rglob("*") if path.is_file()}
    assert names == {
        name for name in wanted if Path(name).suffix in (".py", ".toml", ".html", ".js", ".css", ".svg", ".typed")
    }
    assert "regard/recipes/demo-rnnsearch.toml" in names and "regard/py.typed" in names
    check = [sys.executable, "-m", "twine", "check", "--strict", *map(str, (tmp_path / "dist").iterdir())]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
