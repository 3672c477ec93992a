"""One background event loop, for sync callers of async tools and for connections that outlive a loop.

    result = loop.run(tool.call(arguments, state))          # from a thread without a running loop
    answer = await loop.on_background(session.ask("..."))   # from any loop: the session stays on its own

A connection belongs to the event loop that created it. Episodes run on the trainer's event loop, so a tool
that keeps connections open keeps them on this one.
"""

from __future__ import annotations

from gem_envs._background import BackgroundLoop

_loop = BackgroundLoop("gem-tools")
background, submit, run, on_background = _loop.get, _loop.submit, _loop.run, _loop.on
