"""The records that a segment holds: the only thing that the node program and the store share."""
