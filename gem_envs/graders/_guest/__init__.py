"""Code of the grader of programs that runs inside the sandbox, with only the standard library of Python."""
