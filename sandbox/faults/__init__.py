"""What can be made to break, and how it is told.

One table of faults: a name, parameters, what it does. Whoever breaks something, a
command against a running sandbox, a scenario, the story of the demo or a test, takes it
from here. Each of them is done for real, by the means of the operating system or at the
border between two programs; what cannot be done is refused with a sentence.
"""
