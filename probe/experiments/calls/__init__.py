"""Ways to load and call a model: with a cache, in half precision, for a gradient; and the files it is loaded from."""
