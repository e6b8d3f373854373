"""What a fault means for a chip: code to level, counted over time, and by hand.

Belongs here: the built-in table (`codes`), the cluster's own (`document`, from the
ConfigMap `mindx-dl-fault-config`), what a code that returns or stays adds up to
(`escalation`), chips that people have separated (`separation`), and the verdict on
one reading from all of these (`judging`). Pure, all of it.

Does not belong here: what a level means for a chip's condition (`agent.health`).
"""
