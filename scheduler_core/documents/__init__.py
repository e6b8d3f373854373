"""Documents that people write: all problems at once, each with its place.

A format is a *parser*: a function from a part of the document to its value. Small
parsers make larger ones:

    server = record(Server, node=optional(name, ""), slice=required(whole(0)))
    servers = read_json(text, listing(server))

A wrong part is reported as "where: expected this, found that". The reader goes on, so
the author can mend the whole document at once. In the end it raises.

Belongs here: what snapshots and jobs, the simulated driver's file, ConfigMaps that
people write, and the sandbox's scenarios have in common.
Does not belong here: one format; YAML (`service/yaml_files.py`); texts of programs
(`scheduler_core.wire`), whose first problem is enough.

Open first: `reader.py`, then `parsers.py`.
"""
