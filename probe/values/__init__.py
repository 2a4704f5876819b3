"""Standard values: the parts of a model that serve them, how each is laid out, and where each is read."""
