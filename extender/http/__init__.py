"""HTTP listeners, handlers and body decoding for the protocols of all schedulers.

Answers: at which address is a request served, and how does it become a response?
Belongs here: addresses and their certificates (`listeners`), what all verbs do between
request and response (`endpoint`), decoding of bodies (`body`).
Does not belong here: the messages of a protocol (`kube_scheduler.protocol`,
`volcano.protocol`), the HTTP server itself (`service.endpoints`).
Open first: `endpoint`.
Decision records: none for this folder.
"""
