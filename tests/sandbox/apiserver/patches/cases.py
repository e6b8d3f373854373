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


def _of_main(**members: Any) -> Any:
    return {"spec": {"containers": [{"name": "main", **members}]}}


_DELETE = {"$patch": "delete"}
_REPLACE = {"$patch": "replace"}

WRITTEN = (
    _written("an empty patch", {}),
    _written("maps merge", {"metadata": {"labels": {"b": None, "c": "3"}}}),
    _written("null for what is not there", {"metadata": {"annotations": None}}),
    _written("nulls within what is new", {"metadata": {"annotations": {"a": None}}}),
    _written("containers by name", _of_main(image="i:3")),
    _written("a new container", {"spec": {"containers": [{"name": "new"}]}}),
    _written("env by name", _of_main(env=[{"name": "B", "value": "3"}])),
    _written("a new variable", _of_main(env=[{"name": "C", "value": "3"}])),
    _written("env without one", _of_main(env=[{"name": "A", **_DELETE}])),
    _written("env replaced", _of_main(env=[{"name": "C"}, _REPLACE])),
    _written("an unknown directive", _of_main(env=[{"name": "A", "$patch": "no"}])),
    _written("a variable without a name", _of_main(env=[{"value": "3"}])),
    _written("args are replaced", _of_main(args=["c"])),
    _written("ports by number", _of_main(ports=[{"containerPort": 81, "name": "x"}])),
    _written(
        "the first of equal ports", _of_main(ports=[{"containerPort": 80, "name": "x"}])
    ),
    _written("both equal ports go", _of_main(ports=[{"containerPort": 80, **_DELETE}])),
    _written("tolerations are replaced", {"spec": {"tolerations": [{"key": "b"}]}}),
    _written("resources merge", _of_main(resources={"limits": {"cpu": "1"}})),
    _written("resources go", _of_main(resources=_DELETE)),
    _written("resources replaced", _of_main(resources={**_REPLACE, "requests": {}})),
    _written("a null removes a list", _of_main(env=None)),
    _written(
        "owners by uid",
        {"metadata": {"ownerReferences": [{"uid": "2", "controller": True}]}},
    ),
    _written(
        "an owner goes", {"metadata": {"ownerReferences": [{"uid": "1", **_DELETE}]}}
    ),
    _written("finalizers add up", {"metadata": {"finalizers": ["example.com/c"]}}),
    _written(
        "a finalizer goes",
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}},
    ),
    _written(
        "finalizers in order",
        {
            "metadata": {
                "$setElementOrder/finalizers": ["example.com/c", "example.com/b"],
                "finalizers": ["example.com/c"],
                "$deleteFromPrimitiveList/finalizers": ["example.com/a"],
            }
        },
    ),
    _written(
        "containers in order",
        {
            "spec": {
                "$setElementOrder/containers": [
                    {"name": "side"},
                    {"name": "new"},
                    {"name": "main"},
                ],
                "containers": [{"name": "new", "image": "i:9"}],
            }
        },
    ),
    _written(
        "an order alone",
        {"spec": {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]}},
    ),
    _written(
        "an order that names not all",
        {"spec": {"$setElementOrder/containers": [{"name": "side"}]}},
    ),
    _written(
        "an order that contradicts its list",
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "main"}],
                "containers": [{"name": "other"}],
            }
        },
    ),
    _written(
        "a volume of another kind",
        {
            "spec": {
                "volumes": [
                    {
                        "name": "v",
                        "$retainKeys": ["name", "hostPath"],
                        "hostPath": {"path": "/v"},
                    }
                ]
            }
        },
    ),
    _written(
        "a key that is not retained",
        {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {}}]}},
    ),
    _written("the whole spec replaced", {"spec": {**_REPLACE, "nodeName": "n"}}),
    _written("a map in place of a list", {"spec": {"tolerations": {"a": "b"}}}),
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
