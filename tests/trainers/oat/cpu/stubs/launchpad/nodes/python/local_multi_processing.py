class PythonProcess:
    """Configuration of a process; unused here, because there is only one."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
