"""What other tools export, read as topics to be: keyword tables, folders of texts, whole sites; ground floor.

Pure readers: they know no database and write nothing. Each yields what it finds as it goes, one piece in memory at a
time, and a piece that cannot be taken is a ``Refused`` with its place and its reason, never an exception.
"""
