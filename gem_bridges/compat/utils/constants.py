"""GEM's constants."""

from __future__ import annotations

TERMINAL_STATE = "<\uff5cTERMINAL_STATE\uff5c>"


class LanguageGameReward:
    """Rewards that GEM's games share; gem_core's games also pay them, unless their page says otherwise."""

    success_reward = 1.0
    internal_step_reward = 0.0
    fail_reward = 0.0
    invalid_action_reward = 0.0
    format_error_reward = -0.1
