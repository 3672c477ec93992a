"""Is an answer right? Pure functions that any thread may call.

`math` compares mathematical answers, `qa` short texts, `programs` runs a program on tests.
"""
