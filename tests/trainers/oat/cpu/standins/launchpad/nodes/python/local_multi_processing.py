class PythonProcess:
    """How a process is started; here there is one."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
