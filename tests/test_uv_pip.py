"""uv installs from where pip's settings say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_env_tables import load

pytestmark = pytest.mark.once
tool: Any = load("uv_pip")


def test_uv_gets_pips_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    wheels, more = tmp_path / "wheels", tmp_path / "more"
    wheels.mkdir()
    file = tmp_path / "pip.conf"
    file.write_text(
        f"[global]\nindex-url = https://a/simple\nfind-links = {wheels}\n    {tmp_path / 'none'}\n"
        "timeout = 7\ntrusted-host = a b:8080\n[install]\ntimeout = 9\n[download]\nproxy = http://p\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_INDEX_URL", "https://env/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{more} https://c/simple")
    found = tool.settings()
    assert found["UV_DEFAULT_INDEX"] == "https://env/simple"
    assert found["UV_INDEX"] == "https://c/simple"
    assert found["UV_FIND_LINKS"] == str(wheels)
    assert found["UV_HTTP_TIMEOUT"] == "9"
    assert found["UV_INSECURE_HOST"] == "a b:8080"
    assert "ALL_PROXY" not in found
