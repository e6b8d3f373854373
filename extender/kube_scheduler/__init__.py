"""The extender protocol of kube-scheduler: filter, prioritize, bind."""
