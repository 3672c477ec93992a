"""WebShop: search for a product, choose its options, and buy it. Also the table of its ids."""

from __future__ import annotations

from gem_core import register

_MODES = {"html": "as HTML", "text": "as plain text", "text_rich": "as text with marked buttons"}


def register_webshop() -> None:
    """Register the ids of the shop."""
    for split in ("train", "test"):
        for mode, shown in _MODES.items():
            register(
                f"webshop:{split}-{mode}",
                "gem_envs._webshop.env:WebShop",
                description=f"Buy what an instruction asks for; pages {shown}, {split} goals",
                extra="search",
                eval_kwargs={"split": "test"},
                split=split,
                observation_mode=mode,
            )
