"""The APIs of a gateway: chat completions, Responses, and Anthropic messages."""
