"""Parts of chips: which can be cut, what fits beside what, and which chip is cut.

It answers: which template a pod's request means on a chip, whether a template may join
the parts that lie on a chip, and which chip of which node takes a part best.

Belongs here: the table of templates, and rules about one chip and its parts.
Does not belong here: whole chips (`node`), which server it is (`products`), texts that
other programs read (`wire.parts`).

Open `templates` first: its rows are all that differs between chips. `room` says what
parts leave on a chip, `request` what a pod gets, `choice` which chip comes first;
`index` finds that chip among all nodes.

Decisions: none. Seed facts (`tests/seeds.py`): 002-01, 002-04.
"""
