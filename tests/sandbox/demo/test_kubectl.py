from sandbox.demo import kubectl


def test_without_kubectl_the_same_content_is_told() -> None:
    config_map = {
        "metadata": {"name": "cm", "namespace": "kube-system", "labels": {"a": "b"}},
        "data": {"Two": "2", "One": "1"},
    }

    assert kubectl.described(config_map).split("\n") == [
        "Name:         cm",
        "Namespace:    kube-system",
        "Labels:       a=b",
        "",
        "Data",
        "====",
        "One:",
        "----",
        "1",
        "",
        "Two:",
        "----",
        "2",
        "",
    ]
