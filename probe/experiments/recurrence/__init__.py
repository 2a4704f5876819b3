"""Recurrent mixers: their state, how a step carries it on, and the code that runs it."""
