"""The file for ``rollout.env_path``, for both interfaces of RL2.

RL2's rank 0 loads this file by its path. The newer source tree calls `generate`; rl-square 0.0.2 calls
`reset` and `step`.
"""

from __future__ import annotations

from gem_rl2._session import Session

_session = Session.current()
generate, reset, step = _session.generate, _session.reset, _session.step
