"""An embedded cluster: what the demo plays on, and what tests run in.

What belongs here: an API server, kubelets and a scheduling loop in memory
(`apiserver`, `kubelet`, `scheduler`), a whole cluster of them with our real
programs (`world`), and the story told on it (`demo`). What does not: any rule of
the product. Agents and the extender run as programs, never as imports.
"""
