"""The extender protocol of Volcano: sessions, predicates, claims."""
