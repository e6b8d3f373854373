"""Moving jobs off broken chips.

Decision records: none.
"""
