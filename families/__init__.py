"""The families: every text decoder of transformers, by the text model's ``model_type``.

``families.tsv`` gives each its class, title and checkpoints, ``twins.json`` the tiny twins of those that have more to
show than ``tiny``, shrunk from the class's defaults. A family of which there is more to say has a small module of that
name, which then stands for its row.

A module opens with literals that ``ast`` can read without importing anything: ``TITLE``, ``CHECKPOINTS`` (Hub ids in
the order of the page's selector) and ``TWINS`` (the tiny twins: name -> what it is shrunk from and the sizes that
change). ``configs/`` holds the published ``config.json`` files the project uses, ``configs/SOURCES.tsv`` where each
of them was found.
"""
