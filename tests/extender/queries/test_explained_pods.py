"""What `/v1/explain` tells of many nodes, and of pods that it does not know."""

from tests.extender.queries.asked import asked, made
from tests.support.watched import tenant


async def test_p16_many_nodes_are_told_by_reason_and_each_only_if_so_asked() -> None:
    names = [f"n{number:02}" for number in range(60)]
    full = [tenant(f"t-{name}", name, (0,)) for name in names]
    async with asked(*full, nodes=names) as it:
        it.world.add(*(made(name, size=4) for name in "abcd"))
        await it.filter("a")

        found = await it.explain("a", "?nodes=false")
        each = await it.explain("a", "?nodes=true")
        async with it.session.get("/v1/explain/default/a?nodes=1") as answer:
            refused = answer.status, await answer.json()

    assert found["reasons"] == [
        {"nodes": 60, "text": "without 8 free chips", "names": ["n00", "n01", "n02"]}
    ]
    line = "    60 nodes: without 8 free chips (n00, n01, n02 and 57 more)"
    assert line in found["text"].splitlines()
    assert len(found["text"].splitlines()) < 15
    assert each["nodes"] == dict.fromkeys(names, "without 8 free chips")
    assert refused == (400, {"error": "nodes: expected true or false"})
