"""The guide: five patterns in code that is the same for every family, run on families of different kinds.

The pages are ``site_src/guide/*.md``. ``python -m probe guide`` runs their code and keeps what it came to in
``site_src/guide/results.json``, which the pages show.
"""
