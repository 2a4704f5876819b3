"""What differs between records: facts, told apart from rounding, wording and provenance.

`compare` compares two records field by field. `report` does so for all records of two git revisions or folders, which
``python -m probe diff`` prints. `check` compares the committed records with what a run gives now.
"""
