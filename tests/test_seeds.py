from tests.seeds import LATER, POINTS, PROMISED, listing, problems

ALL = [(point, "tests/test_a.py::test_a") for point in sorted(PROMISED)]


def test_promised_and_later_points_exist_and_differ() -> None:
    assert POINTS.keys() >= PROMISED | LATER
    assert not PROMISED & LATER


def test_a_mark_that_names_no_point_is_a_problem() -> None:
    marks = [*ALL, ("004-99", "tests/test_b.py::test_b")]

    assert problems(marks) == [
        "tests/test_b.py::test_b: no point '004-99' in tests/seeds.py"
    ]


def test_a_promised_point_without_a_test_is_a_problem() -> None:
    marks = [(point, test) for point, test in ALL if point != "004-09"]

    assert problems(marks) == [f"004-09 has no test: {POINTS['004-09']}"]


def test_the_list_names_each_test_once_and_what_is_open_and_later() -> None:
    test = "tests/test_a.py::test_a"

    lines = listing([("000-01", test), ("000-01", test), ("999-99", test)]).splitlines()

    assert lines[:2] == [f"000-01  {POINTS['000-01']}", f"        {test}"]
    assert lines.count(f"        {test}") == 1
    assert lines[-2:] == [f"  {point}  {POINTS[point]}" for point in sorted(LATER)]
    assert f"1 of {len(POINTS)} points are carried by tests." in lines
