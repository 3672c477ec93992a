"""Graders of answers: pure functions that any thread may call.

`math` compares mathematical answers, `qa` compares short texts, and `programs` runs a program on tests.
"""
