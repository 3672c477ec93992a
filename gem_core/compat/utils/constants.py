"""GEM's constants."""

from __future__ import annotations

TERMINAL_STATE = "<\uff5cTERMINAL_STATE\uff5c>"


class LanguageGameReward:
    """Rewards that GEM's games share; the games of gem_core pay these, too, except where a page says so."""

    success_reward = 1.0
    internal_step_reward = 0.0
    fail_reward = 0.0
    invalid_action_reward = 0.0
    format_error_reward = -0.1
