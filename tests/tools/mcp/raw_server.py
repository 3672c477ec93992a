"""A server over pipes without the package: what it lists and returns is read from a file of JSON.

    python raw_server.py FILE

The file holds ``{"tools": [...], "results": {name: result}}``. A tool without a result returns its arguments.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WHAT = json.loads(Path(sys.argv[1]).read_text())


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "raw", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": WHAT["tools"], **WHAT.get("more", {})}
    if method == "tools/call":
        said = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
        return dict(WHAT.get("results", {}).get(params["name"], said))
    raise LookupError(method)


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    try:
        message["result"] = answer(request["method"], request.get("params") or {})
    except LookupError:
        message["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(message), flush=True)
