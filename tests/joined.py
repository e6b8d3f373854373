"""What is said of several product lines, in one document."""

import json


def joined(texts: list[str]) -> str:
    """One document of several: objects and lists joined, other values the last."""

    def join(one: object, other: object) -> object:
        if isinstance(one, dict) and isinstance(other, dict):
            keys = one | other
            return {
                key: join(one[key], other[key])
                if key in one and key in other
                else keys[key]
                for key in keys
            }
        if isinstance(one, list) and isinstance(other, list):
            return one + other
        if isinstance(one, str) and isinstance(other, str) and one[:1] == "[":
            return json.dumps(json.loads(one) + json.loads(other))
        return other

    if len(texts) == 1:
        return texts[0]
    first, *others = (json.loads(text) for text in texts)
    for each in others:
        first = join(first, each)
    return json.dumps(first)
