"""One small module a family, named after the text model's ``model_type``.

A module opens with literals that ``ast`` can read without importing anything: ``TITLE``, ``CHECKPOINTS`` (Hub ids in
the order of the page's selector) and ``TWINS`` (the tiny twins: name -> what it is shrunk from and the sizes that
change). ``configs/`` holds the published ``config.json`` files the project uses, ``configs/SOURCES.tsv`` where each
of them was found.
"""
