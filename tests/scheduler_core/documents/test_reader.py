"""What all documents that people write have in common; the formats have tests, too."""

import pytest

from scheduler_core.documents.parsers import (
    distinct,
    json_text,
    listing,
    name,
    optional,
    record,
    required,
    text,
    texts,
    whole,
    word,
)
from scheduler_core.documents.reader import (
    MOST_PROBLEMS,
    DocumentError,
    Parser,
    WrongError,
    read,
    read_partly,
)

SERVER = record(
    dict[str, object],
    name=required(name),
    slots=optional(whole(0, 8), 8),
    use=optional(word({"idle": False, "busy": True})),
)
SERVERS = distinct(SERVER, "name", lambda server: server["name"])


def problems(value: object, parser: Parser[object]) -> tuple[str, ...]:
    with pytest.raises(DocumentError) as caught:
        read(value, parser)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def test_a_document_is_read_with_its_defaults() -> None:
    assert read([{"name": "a"}, {"name": "b", "use": "busy"}], SERVERS) == (
        {"name": "a", "slots": 8, "use": None},
        {"name": "b", "slots": 8, "use": True},
    )


def test_all_problems_come_at_once_each_with_its_place() -> None:
    servers = [{"nam": "a", "slots": 9}, {"name": "b", "use": 1}, {"name": "b"}, 7]

    assert problems(servers, SERVERS) == (
        "[0].nam: no such key, did you mean 'name'?",
        "[0].name: expected a name, found nothing",
        "[0].slots: expected a whole number from 0 to 8, found 9",
        "[1].use: expected one of idle, busy, found 1",
        "[2]: expected each name once, found 'b'",
        "[3]: expected an object, found 7",
    )


def test_each_list_remembers_its_own_items() -> None:
    assert read([["a"], ["a"]], listing(distinct(text, "text"))) == (("a",), ("a",))


def test_null_is_a_value_unless_people_leave_keys_blank() -> None:
    server = {"name": "a", "slots": None}

    assert problems(server, SERVER) == (
        "slots: expected a whole number from 0 to 8, found nothing",
    )
    assert read(server, SERVER, is_null_absent=True)["slots"] == 8


def test_json_in_a_text_is_a_part_of_the_document() -> None:
    parser = texts({"servers": json_text(name, most=9)})

    assert problems({"servers": "[]", "note": "x"}, parser) == (
        "servers: expected a name, found []",
    )
    assert problems({"servers": '"abcdefgh"'}, parser) == (
        "servers: expected at most 9 characters, found 10",
    )


def test_of_many_problems_the_first_are_listed_and_the_others_counted() -> None:
    with pytest.raises(DocumentError) as caught:
        read({f"key-{number}": 1 for number in range(1000)}, SERVER)

    assert len(caught.value.problems) == MOST_PROBLEMS + 1
    assert caught.value.problems[-1] == "document: expected no more, found 901 more"
    assert caught.value.count == 1001
    assert caught.value.places[0] == ("key-0",)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 2**63, [1]])
def test_a_whole_number_is_no_other_value(value: object) -> None:
    [problem] = problems(value, whole())

    assert problem.startswith("document: expected a ")


def test_what_is_right_can_be_read_beside_what_is_not() -> None:
    servers = [{"name": "a"}, {"name": "b", "slots": 9}, 7]

    found, wrong = read_partly(servers, SERVERS)

    assert [server["name"] for server in found] == ["a", "b"]
    assert wrong == problems(servers, SERVERS)
    assert read_partly([], SERVERS) == ((), ())
    with pytest.raises(WrongError):
        read_partly(7, SERVERS)
