"""The shape of the source tree, counted: who may compare what, who imports whom, how many rooms there are."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.tasks.registry import TASKS

ROOT = Path(__file__).parent.parent / "regard"
FILES = {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}
ROOMS = {path.parts[0] if len(path.parts) > 1 else path.stem: path for path in FILES}


def inside(path: Path, *rooms: str) -> bool:
    return path.parts[0] in rooms


def named(place: Path, node: ast.AST) -> str:
    return f"{place}:{getattr(node, 'lineno', '?')}"


def constants(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def test_no_module_outside_tasks_compares_the_name_of_a_task() -> None:
    found = []
    for path, tree in FILES.items():
        for node in ast.walk(tree):
            keys = (
                node.keys
                if isinstance(node, ast.Dict)
                else [node]
                if isinstance(node, ast.Compare | ast.MatchValue)
                else []
            )
            if not inside(path, "tasks") and any(name in TASKS for key in keys if key for name in constants(key)):
                found.append(named(path, node))
    assert found == []


def test_no_module_outside_models_and_layers_asks_for_the_class_of_a_shell_or_a_layer() -> None:
    parts = {
        node.name
        for path, tree in FILES.items()
        if inside(path, "models", "layers")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    allowed = {"Design", "State"}  # what a model's file tells, and the value that generation carries: neither computes
    found = [
        named(path, node)
        for path, tree in FILES.items()
        if not inside(path, "models", "layers")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        for name in ast.walk(node.args[1])
        if isinstance(name, ast.Name)
        and name.id in parts - allowed
        and imported_from(tree, name.id, ("models", "layers"))
    ]
    assert found == []


def imported_from(tree: ast.AST, name: str, rooms: tuple[str, ...]) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[1:2] in [[room] for room in rooms]
        and any((alias.asname or alias.name) == name for alias in node.names)
        for node in ast.walk(tree)
    )


def test_batches_are_made_by_data_alone() -> None:
    found = [
        named(path, node)
        for path, tree in FILES.items()
        if not inside(path, "data")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Batch"
    ]
    assert found == []


def test_a_mask_is_read_off_padding_in_one_place() -> None:
    found = [
        named(path, node)
        for path, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(each, ast.Name) and each.id == "PAD" for each in [node.left, *node.comparators])
    ]
    assert [place.split(":")[0] for place in found] == ["interface.py"]


def imports() -> dict[str, set[str]]:
    """Module -> the modules it imports, wherever in the file, for typing and lazily too."""
    names = {
        ".".join(("regard", *path.with_suffix("").parts)).removesuffix(".__init__"): tree
        for path, tree in FILES.items()
    }
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name, tree in names.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names if alias.name in names}
            elif isinstance(node, ast.ImportFrom) and node.module in names:
                below = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= below & names.keys()
                if below - names.keys():  # something that is defined in the package itself
                    graph[name].add(node.module)
    return graph


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = imports()
    graph["regard"] = set()  # it imports what is asked of it, when it is asked
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


@pytest.mark.parametrize(
    ("room", "may_not"),
    [
        ("data", ("layers", "models", "train", "predict", "score", "look", "compare", "tasks", "show", "cli")),
        ("layers", ("data", "models", "train", "predict", "score", "look", "compare", "tasks", "show", "cli")),
        ("models", ("data", "train", "predict", "score", "look", "compare", "tasks", "show", "cli")),
        ("show", ("data", "layers", "models", "train", "predict", "score", "look", "compare", "tasks", "cli")),
        ("tasks", ("compare", "cli", "loading")),
    ],
)
def test_imports_point_one_way(room: str, may_not: tuple[str, ...]) -> None:
    found = [
        f"{name} -> {other}"
        for name, others in imports().items()
        for other in others
        if name.split(".")[1:2] == [room] and other.split(".")[1:2] in [[each] for each in may_not]
    ]
    assert found == []


def test_there_are_few_entries_in_the_package() -> None:
    listed = subprocess.run(["git", "ls-files", "regard"], cwd=ROOT.parent, capture_output=True, text=True, check=True)
    entries = {line.split("/")[1] for line in listed.stdout.splitlines()}
    assert len(entries) <= 29
    assert len([entry for entry in entries if entry.endswith(".py")]) <= 12


def test_the_library_never_prints() -> None:
    found = [
        named(path, node)
        for path, tree in FILES.items()
        if not inside(path, "cli")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert found == []
