"""The command line, one file a noun: parse, call one verb, render; floor 4.

Nothing here imports the database's libraries when it is loaded: commands do that when they run, so that help is quick.
"""
