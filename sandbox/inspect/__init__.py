"""Looks at the simulated cluster and checks what it sees."""
