"""Record to page: reads records and composes the site, without torch, transformers, nnsight or numpy."""
