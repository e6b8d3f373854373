"""What a fault means for a chip: code to level, counted over time, and by hand.

Belongs here: the built-in table (`codes`), the cluster's own (`fault_config`, from the
ConfigMap `mindx-dl-fault-config`), what a code that returns or stays adds up to
(`escalation`), chips that people have separated (`separation`), and the verdict on
one reading from all of these (`judge`); and what a level means for a chip's
condition over time (`conditions`). Pure, all of it.
"""
