"""Objects and patches of them: written ones, and made by chance from a seed."""

import random  # noqa: TID251  # repeatable: from a seed
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden") / "strategic.json"

_POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "labels": {"a": "1", "b": "2"},
        "finalizers": ["example.com/a", "example.com/b"],
        "ownerReferences": [
            {"uid": "1", "name": "one", "kind": "Job"},
            {"uid": "2", "name": "two", "kind": "Job"},
        ],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "i:1",
                "args": ["a", "b"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [
                    {"containerPort": 80, "protocol": "TCP"},
                    {"containerPort": 80, "protocol": "UDP"},
                    {"containerPort": 81},
                ],
                "resources": {"limits": {"huawei.com/Ascend910": "2"}},
            },
            {"name": "side", "image": "i:2"},
        ],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "volumes": [
            {"name": "v", "emptyDir": {}},
            {"name": "w", "hostPath": {"path": "/w"}},
        ],
    },
}


def _written(name: str, patch: Any, original: Any = None, kind: str = "Pod") -> Any:
    chosen = _POD if original is None else original
    return {"name": name, "kind": kind, "original": chosen, "patch": patch}


def _in_spec(name: str, **members: Any) -> Any:
    return _written(name, {"spec": members})


def _in_metadata(name: str, **members: Any) -> Any:
    return _written(name, {"metadata": members})


def _in_main(name: str, **members: Any) -> Any:
    return _in_spec(name, containers=[{"name": "main", **members}])


def _containers_in_order(*names: str) -> Any:
    return {"$setElementOrder/containers": [{"name": name} for name in names]}


_DELETE = {"$patch": "delete"}
_REPLACE = {"$patch": "replace"}

WRITTEN = (
    _written("an empty patch", {}),
    _in_metadata("maps merge", labels={"b": None, "c": "3"}),
    _in_metadata("null for what is not there", annotations=None),
    _in_metadata("nulls within what is new", annotations={"a": None}),
    _in_main("containers by name", image="i:3"),
    _in_spec("a new container", containers=[{"name": "new"}]),
    _in_main("env by name", env=[{"name": "B", "value": "3"}]),
    _in_main("a new variable", env=[{"name": "C", "value": "3"}]),
    _in_main("env without one", env=[{"name": "A", **_DELETE}]),
    _in_main("env replaced", env=[{"name": "C"}, _REPLACE]),
    _in_main("an unknown directive", env=[{"name": "A", "$patch": "no"}]),
    _in_main("a variable without a name", env=[{"value": "3"}]),
    _in_main("args are replaced", args=["c"]),
    _in_main("ports by number", ports=[{"containerPort": 81, "name": "x"}]),
    _in_main("the first of equal ports", ports=[{"containerPort": 80, "name": "x"}]),
    _in_main("both equal ports go", ports=[{"containerPort": 80, **_DELETE}]),
    _in_spec("tolerations are replaced", tolerations=[{"key": "b"}]),
    _in_main("resources merge", resources={"limits": {"cpu": "1"}}),
    _in_main("resources go", resources=_DELETE),
    _in_main("resources replaced", resources={**_REPLACE, "requests": {}}),
    _in_main("a null removes a list", env=None),
    _in_metadata("owners by uid", ownerReferences=[{"uid": "2", "controller": True}]),
    _in_metadata("an owner goes", ownerReferences=[{"uid": "1", **_DELETE}]),
    _in_metadata("finalizers add up", finalizers=["example.com/c"]),
    _in_metadata(
        "a finalizer goes",
        **{"$deleteFromPrimitiveList/finalizers": ["example.com/a"]},
    ),
    _in_metadata(
        "finalizers in order",
        **{
            "$setElementOrder/finalizers": ["example.com/c", "example.com/b"],
            "finalizers": ["example.com/c"],
            "$deleteFromPrimitiveList/finalizers": ["example.com/a"],
        },
    ),
    _in_spec(
        "containers in order",
        containers=[{"name": "new", "image": "i:9"}],
        **_containers_in_order("side", "new", "main"),
    ),
    _in_spec("an order alone", **_containers_in_order("side", "main")),
    _in_spec("an order that names not all", **_containers_in_order("side")),
    _in_spec(
        "an order that contradicts its list",
        containers=[{"name": "other"}],
        **_containers_in_order("main"),
    ),
    _in_spec(
        "a volume of another kind",
        volumes=[
            {
                "name": "v",
                "$retainKeys": ["name", "hostPath"],
                "hostPath": {"path": "/v"},
            }
        ],
    ),
    _in_spec(
        "a key that is not retained",
        volumes=[{"name": "v", "$retainKeys": ["name"], "hostPath": {}}],
    ),
    _in_spec("the whole spec replaced", **_REPLACE, nodeName="n"),
    _in_spec("a map in place of a list", tolerations={"a": "b"}),
    _written(
        "names of lists that are keys of a map",
        {"data": {"env": "x", "ports": None}},
        {"data": {"env": "a", "ports": "b"}},
        "ConfigMap",
    ),
    _written(
        "image pull secrets of an account are replaced",
        {"imagePullSecrets": [{"name": "b"}], "secrets": [{"name": "b"}]},
        {"imagePullSecrets": [{"name": "a"}], "secrets": [{"name": "a"}]},
        "ServiceAccount",
    ),
    _written(
        "conditions by type",
        {"status": {"conditions": [{"type": "B", "status": "True"}]}},
        {"status": {"conditions": [{"type": "A"}, {"type": "B", "reason": "r"}]}},
        "Node",
    ),
)


def by_chance(seed: int, count: int) -> list[Any]:
    """Return pairs of pods that have something to do with each other."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    return [
        {
            "name": f"by chance {number}",
            "kind": "Pod",
            "original": _pod(chance),
            "modified": _pod(chance),
        }
        for number in range(count)
    ]


def _pod(chance: random.Random) -> Any:
    metadata = {
        "name": "p",
        "labels": {key: chance.choice("xy") for key in _some(chance, "abc")},
        "finalizers": _some(chance, ["e/a", "e/b", "e/c"]),
        "ownerReferences": [
            {"uid": uid, "name": chance.choice("xy")} for uid in _some(chance, "123")
        ],
    }
    spec = {
        "containers": [_container(chance, name) for name in _some(chance, "klm")],
        "tolerations": [{"key": key} for key in _some(chance, "tu")],
        "volumes": [
            {"name": name, chance.choice(["emptyDir", "hostPath"]): {"x": "y"}}
            for name in _some(chance, "vw")
        ],
    }
    return {"metadata": _filled(metadata), "spec": _filled(spec)}


def _container(chance: random.Random, name: str) -> Any:
    return _filled(
        {
            "name": name,
            "image": chance.choice("ij"),
            "args": _some(chance, "pq"),
            "env": [
                {"name": key, "value": chance.choice("xy")}
                for key in _some(chance, "ABC")
            ],
            "ports": [
                {"containerPort": port, "name": chance.choice("xy")}
                for port in _some(chance, [80, 81])
            ],
        }
    )


def _some(chance: random.Random, pool: Any) -> list[Any]:
    return chance.sample(list(pool), chance.randint(0, len(pool)))


def _filled(members: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value}
