"""A taskset of the tests: sums, answered in one turn."""

from __future__ import annotations

import verifiers.v1 as vf

__all__ = ["SumTaskset"]


class SumData(vf.TaskData):
    total: int


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(str(self.data.total) in trace.nodes[-1].message.content)


class SumTaskset(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        return [
            SumTask(
                SumData(name=str(n), prompt=f"{n} + 1?", system_prompt="Add.", total=n + 1), self.config.task
            )
            for n in range(8)
        ]
