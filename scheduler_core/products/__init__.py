"""Table of the server types with Ascend chips, as data.

It answers: which counts a pod may have of a product, how chips are grouped on a
server, which order of nodes a product prefers, and which row a job or a node means.

Belongs here: rows, columns, and the look-up by resource, labels and annotations.
Does not belong here: what a column does. A `Way` works in `node.layouts`, an `Order`
in `node.order`, a `JobRule` in `placement.job_rules`. No code branches on a product.

Open `table` first: each row names its source. `columns` explains the columns, `lookup`
finds the row, also of a kind of parts that were cut beforehand.

Decisions: docs/adr 26 and 27 (a node with several product lines), 45 (a kind of part is
a row). Seed facts (`tests/seeds.py`): 001-01, 001-03, 001-04, 001-07, 001-09, 002-01,
002-02.
"""
