"""The table: every parser of something that comes from outside."""

from tests.hostile import objects, questions, texts, volcano
from tests.hostile.row import Row

ROWS: tuple[Row, ...] = (
    *texts.ROWS,
    *objects.ROWS,
    *questions.ROWS,
    *volcano.ROWS,
)
