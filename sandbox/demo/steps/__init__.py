"""The steps of the story, one module each: act, read back, tell, check.

Each returns what is wrong; nothing, if all is well.
"""
