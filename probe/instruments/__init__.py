"""Instruments: forwards on changed rows, listeners at attentions and modules, and a store of what they measured.

Experiments ask with them; none of them answers a question by itself.
"""
