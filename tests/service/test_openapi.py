from service.openapi import array, closed_object, name_of, reference, with_referred


def test_a_description_has_each_schema_that_is_referred_to_and_no_other() -> None:
    schemas = {
        "Tree": closed_object(children=array(reference("Tree"), "Its branches.")),
        "Leaf": {"anyOf": [{"type": "null"}, {"allOf": [reference("Colour")]}]},
        "Colour": {"enum": ["green"]},
        "Root": {"type": "object"},
    }

    assert list(with_referred(["Tree"], schemas)) == ["Tree"]
    assert list(with_referred(["Leaf", "Leaf"], schemas)) == ["Colour", "Leaf"]
    assert name_of(reference("io.k8s.api.core.v1.Pod")) == "io.k8s.api.core.v1.Pod"
