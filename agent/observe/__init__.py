"""What a person sees of a running agent: metrics and the keys of its log lines.

Belongs here: names. Whoever knows a fact counts or logs it, in these words.
"""
