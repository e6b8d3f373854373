"""Steps of the demo: act, read back, print, check.

Each step returns a list of what is wrong; it is empty if all is well.
"""
