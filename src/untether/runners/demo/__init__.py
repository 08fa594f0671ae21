"""The demo engine: a scripted agent that needs no account. Kept light: the agent program starts through it."""
