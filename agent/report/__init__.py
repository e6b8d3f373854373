"""The node's ConfigMap, labels and annotations: content, schedule, writer."""
