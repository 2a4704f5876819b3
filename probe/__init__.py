"""The probe: loads a checkpoint, measures it, and writes what it saw as a record; and turns records into pages.

The package has a heavy side, which imports torch, transformers and nnsight (``standard``, ``checkpoints``,
``measure``, ``experiments``), and a light side, which never does (``schema``, ``store``, ``cli``, ``render``).
"""
