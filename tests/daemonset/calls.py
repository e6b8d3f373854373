"""Which calls to the API server a program can make, as its source says."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.daemonset.rendered import sources

#: Methods of `kube.client.Client` that send something, and the function that patches.
_SENDING = {"request", "stream"}
_PATCHING = "send_patch"


def sending_names() -> set[str]:
    """`module.name` of all functions and classes of `kube` that send a request."""
    return {
        f"{Path(path).stem}.{each.name}"
        for path, tree in sources("kube")
        for each in tree.body
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and path != "kube/client.py"
        and _sends(each)
    }


def sending_methods() -> dict[str, set[str]]:
    """{`module.Class` of `kube` that sends requests: its methods that send one}."""
    return {
        f"{Path(path).stem}.{each.name}": {
            method.name
            for method in each.body
            if isinstance(method, ast.AsyncFunctionDef) and _sends(method)
        }
        for path, tree in sources("kube")
        for each in tree.body
        if isinstance(each, ast.ClassDef) and path != "kube/client.py" and _sends(each)
    }


def uses(program: str) -> set[str]:
    """What of `sending_names` a program names; a list-watch with what it brings."""
    sending = sending_names()
    return {
        use
        for _, tree in sources(program)
        for use in _uses(tree)
        if use.partition("(")[0] in sending
    }


def own_requests(program: str) -> list[str]:
    """Where a program sends a request past the functions of `kube`."""
    return [path for path, tree in sources(program) if _sends(tree)]


def _sends(tree: ast.AST) -> bool:
    for each in ast.walk(tree):
        match each:
            case ast.Call(func=ast.Name(id=name)) if name == _PATCHING:
                return True
            case ast.Call(func=ast.Attribute(attr=attr, value=value)):
                if attr in _SENDING and "client" in ast.unparse(value):
                    return True
            case _:
                pass
    return False


def _uses(tree: ast.Module) -> Iterator[str]:
    modules, names = _imports(tree)
    for each in ast.walk(tree):
        match each:
            case ast.Call(func=ast.Name(id="ListWatch"), args=[_, _, kind]):
                yield f"reflector.ListWatch({ast.unparse(kind).rpartition('.')[2]})"
            case ast.Attribute(value=ast.Name(id=name), attr=what) if name in modules:
                yield f"{modules[name]}.{what}"
            case ast.Name(id=name) if name in names and name != "ListWatch":
                yield names[name]


def _imports(tree: ast.Module) -> tuple[dict[str, str], dict[str, str]]:
    """({local name: module of kube}, {local name: module.name})."""
    modules: dict[str, str] = {}
    names: dict[str, str] = {}
    for each in ast.walk(tree):
        match each:
            case ast.ImportFrom(module="kube"):
                modules |= {a.asname or a.name: a.name for a in each.names}
            case ast.ImportFrom(module=str(module)) if module.startswith("kube."):
                stem = module.removeprefix("kube.")
                names |= {a.asname or a.name: f"{stem}.{a.name}" for a in each.names}
    return modules, names
